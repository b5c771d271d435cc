package frontdoor_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature I1, V9, promise P7: the quick start is the same on each database. A handler fails until its cause is gone,
// its letter waits in the database, comes back once, and each message takes effect once although it is delivered twice.
func TestOneDatabaseAtTheDoor(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		testkit.Must(db.Exec(`CREATE TABLE effects (id VARCHAR(36) NOT NULL)`))
		dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{Service: "shop", DB: db}))
		gone := make(chan struct{})
		live := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
		stop := testkit.RunRouter(t, nil, func(router *message.Router) {
			dlc.Attach(router)
			router.AddConsumerHandler("billing", "orders", live, func(msg *message.Message) error {
				select {
				case <-gone:
				default:
					return classify.Permanent(errors.New("no such customer"))
				}
				_, err := idempotency.Tx(msg.Context()).Exec(fmt.Sprintf(`INSERT INTO effects VALUES ('%s')`, msg.UUID))
				return err
			})
		})
		defer stop()
		publish := func(id string) {
			testkit.NoError(t, live.Publish("orders", message.NewMessage(id, []byte("order"))))
		}
		count := func(f letters.Filter) int {
			return testkit.Must(dlc.Letters().Count(t.Context(), f))
		}
		publish("order-1")
		testkit.Eventually(t, "the letter is in the database", func() bool { return count(letters.Filter{}) == 1 })
		close(gone)
		report, err := redrive.Drain(t.Context(), dlc.Letters(), live, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
		testkit.Require(t, err == nil && report.Redriven == 1, "%+v: %v", report, err)
		publish("order-1") // again
		publish("order-2")
		testkit.Eventually(t, "each takes effect", func() bool { return effects(t, db) == "order-1,order-2" })
	})
}

func effects(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows := testkit.Must(db.Query(`SELECT id FROM effects ORDER BY id`))
	defer func() { _ = rows.Close() }()
	var ids []string
	for rows.Next() {
		var id string
		testkit.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	return strings.Join(ids, ",")
}
