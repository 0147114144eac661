package memstore

// Options are the options of New. The zero Options are ready to use.
type Options struct {
	// MaxBytes bounds the memory for values and for the records of failed loads, with their keys
	// and about what it takes to keep account of them. Above it what expires next is dropped first;
	// that is a miss, or one more try of a load that failed. A value that is larger than all of it
	// is not kept. Leases are not counted: there is one for each running load. Default 256 MiB;
	// negative: no bound.
	MaxBytes int64
}

const defaultMaxBytes = 256 << 20

// limits are the shares of values and records. Records have their own: neither a burst of failures
// nor a store full of values may push the other out.
func (o Options) limits() (values, records int64) {
	all := o.MaxBytes
	switch {
	case all < 0:
		return noLimit, noLimit
	case all == 0:
		all = defaultMaxBytes
	}
	records = all / 16
	return all - records, records
}
