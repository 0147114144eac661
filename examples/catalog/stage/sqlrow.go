package stage

import "context"

// sqlrow is a row with a unique name. The request that inserts the row has the lock, and deletes
// the row afterwards.
//
// Its flaw is the same as that of setnx: if a holder dies, its row stays.
type sqlrow struct {
	*Replica
	name string
}

// SQLRows is the statement that creates the table of the locks.
const SQLRows = `CREATE TABLE IF NOT EXISTS shop_lock (name VARCHAR(255) PRIMARY KEY)`

func (s *sqlrow) try(ctx context.Context) (bool, error) {
	done, err := s.DB.ExecContext(ctx,
		`INSERT INTO shop_lock (name) VALUES ($1) ON CONFLICT DO NOTHING`, s.name)
	if err != nil {
		return false, err
	}
	inserted, err := done.RowsAffected()
	return inserted == 1, err
}

func (s *sqlrow) unlock(ctx context.Context) error {
	if _, err := s.DB.ExecContext(ctx, `DELETE FROM shop_lock WHERE name = $1`,
		s.name); err != nil {
		return err
	}
	return s.At(ctx, Unlocked)
}
