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
		if _, err := db.Exec(`CREATE TABLE effects (id VARCHAR(36) NOT NULL)`); err != nil {
			t.Fatal(err)
		}
		dlc, err := spillway.New(t.Context(), spillway.Config{Service: "shop", DB: db})
		if err != nil {
			t.Fatal(err)
		}
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
			if err := live.Publish("orders", message.NewMessage(id, []byte("order"))); err != nil {
				t.Fatal(err)
			}
		}
		count := func(f letters.Filter) int {
			n, err := dlc.Letters().Count(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		publish("order-1")
		testkit.Eventually(t, "the letter is in the database", func() bool { return count(letters.Filter{}) == 1 })
		close(gone)
		report, err := redrive.Drain(t.Context(), dlc.Letters(), live, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
		if err != nil || report.Redriven != 1 {
			t.Fatalf("%+v: %v", report, err)
		}
		publish("order-1") // again
		publish("order-2")
		testkit.Eventually(t, "each takes effect", func() bool { return effects(t, db) == "order-1,order-2" })
	})
}

func effects(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows, err := db.Query(`SELECT id FROM effects ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return strings.Join(ids, ",")
}

// A database of several services needs the service's name, because handlers of one name would absorb each other's
// messages.
func TestServiceIsRequired(t *testing.T) {
	for _, d := range []databases.Database{databases.Postgres, databases.MariaDB} {
		t.Run(d.Name, func(t *testing.T) {
			_, err := spillway.New(t.Context(), spillway.Config{DB: d.New(t)})
			if err == nil || !strings.Contains(err.Error(), "Service") {
				t.Errorf("got %v", err)
			}
		})
	}
	dead := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	if _, err := spillway.New(t.Context(), spillway.Config{Publisher: dead, Service: "shop"}); err == nil || !strings.Contains(err.Error(), "without Config.DB") {
		t.Errorf("got %v", err)
	}
}
