package wmsql_test

import (
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
)

// Promise P4, feature D9: what a handler sets for its transaction, a search path for one, neither keeps its message
// from being acknowledged, with its key and outputs, nor is found by the message behind it in the batch.
func TestHandlerChangesSettings(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		says, asks := []string{`CREATE TEMPORARY TABLE own (n int)`, `DROP TEMPORARY TABLE own`}, `SELECT 'none'`
		if b.isPostgres() {
			says = []string{
				`SET LOCAL app.tenant = 'a'`, `CREATE TEMPORARY TABLE own (n int) ON COMMIT DROP`, `SET LOCAL ROLE pg_read_all_settings`,
				`SELECT set_config('search_path', 'elsewhere', true)`,
			}
			asks = `SELECT COALESCE(NULLIF(current_setting('app.tenant', true), ''), 'none')`
		}
		var mu sync.Mutex
		found := map[string]int{}
		b.publish("a", "b", "c")
		b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			tx := idempotency.Tx(msg.Context())
			var tenant string
			if err := tx.QueryRow(asks).Scan(&tenant); err != nil {
				return nil, err
			}
			mu.Lock()
			found[tenant]++
			mu.Unlock()
			outs, err := b.whole(msg)
			if err != nil {
				return nil, err
			}
			for _, statement := range says {
				if _, err := tx.Exec(statement); err != nil {
					return nil, err
				}
			}
			return outs, nil
		}, once)
		b.drained()
		b.until("the outputs are there", func() bool { return len(b.outputs()) == 3 })
		mu.Lock()
		defer mu.Unlock()
		if found["none"] != 3 || len(found) != 1 {
			t.Errorf("handlers found %v", found)
		}
		if letters := b.letters(); len(letters) != 0 {
			t.Errorf("%d letters", len(letters))
		}
	})
}
