package lockstore

import "time"

// usable reports whether the locker is to be asked.
func (s *Store) usable() bool { return int64(time.Since(s.began)) >= s.resumes.Load() }

// trouble notes that the locker could not be used: the leases of the store go alone for a while.
func (s *Store) trouble(err error) {
	s.resumes.Store(int64(time.Since(s.began) + truce))
	if s.troubled.CompareAndSwap(false, true) {
		s.opts.Logger.Warn("lockstore: locks can't be had; loads need a lease of the store only", "error", err)
	}
}

func (s *Store) recovered() {
	if s.troubled.Load() && s.troubled.CompareAndSwap(true, false) {
		s.opts.Logger.Info("lockstore: locks can be had again")
	}
}
