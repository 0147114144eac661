package memstore

// Options are the options of [New]. The zero value of a field means its default.
type Options struct {
	// MaxBytes limits the memory for values and for the records of failed loads, including their
	// keys and an estimate of what it takes to manage them. Above the limit, what would expire next
	// is dropped first: a dropped value is a miss, a dropped record allows one more try of a load
	// that failed. A value that is larger than the limit is not stored. Leases are not counted:
	// there is one for each running load. Default 256 MiB. Negative: no limit.
	MaxBytes int64
}

const defaultMaxBytes = 256 << 20

// limits returns the shares of values and of records. Records have a share of their own, so that
// neither a burst of failures nor a store full of values can push the other out.
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
