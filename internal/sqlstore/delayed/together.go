package delayed

import (
	"context"
	"math/bits"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/batcher"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// What one statement takes of messages that are put at the same time.
const (
	togetherRows  = 64
	togetherBytes = 1 << 20
	togetherWait  = 5 * time.Second // then each message goes alone
)

// newBatcher batches messages that different callers put at the same time.
func (s *Store) newBatcher() *batcher.Batcher[[]any] {
	most := togetherBytes
	if largest := s.db.Largest(); largest > 0 {
		most = min(most, largest/4) // a driver may double values by escaping
	}
	texts := s.putTogether()
	return batcher.New(batcher.Config[[]any]{
		Rows: togetherRows, Bytes: most, Lanes: batcher.Lanes(s.db.Kind() == database.SQLite), Timeout: togetherWait,
		Together: func(ctx context.Context, rows [][]any) ([]int, error) {
			size := bits.Len(uint(len(rows) - 1))
			text, columns := texts(len(rows), size), len(rows[0])
			args := make([]any, 0, columns<<size)
			for _, row := range rows {
				args = append(args, row...)
			}
			if s.db.Kind() == database.Postgres {
				args = append(args, make([]any, (1<<size-len(rows))*columns)...)
			}
			_, err := s.db.Exec(ctx, text, args...)
			return nil, err
		},
	})
}

// putTogether returns the statement that puts a number of messages. Servers and drivers for PostgreSQL keep each
// statement that they see. So there are only those of 1, 2, 4 and so on messages there, and what is left of them is
// NULL.
func (s *Store) putTogether() (text func(rows, size int) string) {
	if s.db.Kind() != database.Postgres {
		return func(rows, _ int) string {
			return s.db.Statement(putInto + `VALUES ` + putRow + strings.Repeat(`, `+putRow, rows-1))
		}
	}
	const row = `(?::bytea, ?::bytea, ?::bytea, ?::bytea, ?::bytea, ?::bigint, ?::bigint, ?::bigint)`
	var texts []string
	for n := 1; n <= togetherRows; n *= 2 {
		texts = append(texts, s.db.Statement(putInto+`SELECT service, topic, id, metadata, payload, size, now_us() + due, now_us() + ready
FROM (VALUES `+row+strings.Repeat(`, `+row, n-1)+`) v (service, topic, id, metadata, payload, size, due, ready) WHERE service IS NOT NULL`))
	}
	return func(_, size int) string { return texts[size] }
}
