package main

import "context"

// createEffects makes the table that the handler writes into, in the receiver's transaction. Nothing in it is unique:
// an effect that happens twice must show.
func (s *site) createEffects() error {
	_, err := s.db.Exec(`CREATE TABLE chaos_effects (id VARCHAR(64) NOT NULL, process BIGINT NOT NULL)`)
	return err
}

func (c *campaign) effectsSoFar(ctx context.Context) (n int, err error) {
	err = c.site.db.QueryRowContext(ctx, `SELECT count(*) FROM chaos_effects`).Scan(&n)
	return n, err
}

// effects counts by id.
func (s *site) effects(ctx context.Context) (map[string]int, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT id, count(*) FROM chaos_effects GROUP BY id`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	effects := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			return nil, err
		}
		effects[id] = n
	}
	return effects, rows.Err()
}
