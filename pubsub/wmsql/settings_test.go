package wmsql_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Promise P4, feature D9: what a handler sets for its transaction does not outlive its message.
func TestHandlerChangesSettings(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		says, asks := []string{`CREATE TEMPORARY TABLE own (n int)`, `DROP TEMPORARY TABLE own`}, `SELECT 'none'`
		if b.isPostgres() {
			says = []string{
				`SET LOCAL app.tenant = 'a'`, `CREATE TEMPORARY TABLE own (n int) ON COMMIT DROP`,
				`SET LOCAL ROLE pg_read_all_settings`,
				`SELECT set_config('search_path', 'elsewhere', true)`,
			}
			asks = `SELECT COALESCE(NULLIF(current_setting('app.tenant', true), ''), 'none')`
		}
		var found deliveries
		b.publish("a", "b", "c")
		b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			tx := txOf(msg.Context())
			var tenant string
			err := tx.QueryRow(asks).Scan(&tenant)
			found.add(tenant)
			outs, also := b.whole(msg)
			err = errors.Join(err, also)
			for _, statement := range says {
				_, also := tx.Exec(statement)
				err = errors.Join(err, also)
			}
			return outs, err
		}, once)
		b.account([]string{"a", "b", "c"})
		testkit.Equal(t, "handlers found", found.String(), "none none none")
	})
}
