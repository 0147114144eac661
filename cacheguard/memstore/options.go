package memstore

// Options are the options of [New]. The zero value of a field means its default.
type Options struct {
	// MaxBytes limits the memory for values and for the records of loads that left no value. It
	// counts their keys, too, and an estimate of the memory that manages them. Above the limit, the
	// store first drops the items that would expire next. A dropped value is a miss. A dropped
	// record allows one more try of a load that failed. Records have a sixteenth of MaxBytes, and
	// values have the rest. A value that is larger than this rest is not stored. Leases don't use
	// this memory, because there is only one for each running load. Default 256 MiB. Negative: no
	// limit.
	MaxBytes int64
}

const defaultMaxBytes = 256 << 20

// limits returns the shares of values and of records. Records have their own share. So a burst of
// failures can't push out values, and a store full of values can't push out records.
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
