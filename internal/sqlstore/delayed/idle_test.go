package delayed

import (
	"slices"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/wire"
)

// An idle relay asks one thing per Poll: of an empty store, of one in which nothing is due yet, and of one whose rows
// others have.
func TestIdle(t *testing.T) {
	d := databases.SQLite
	address := d.Create(t)
	plain := d.Open(t, address)
	db, w := wire.Open(t, "sqlite", address)
	asks := make(chan string, 10_000)
	w.Set(func(_ *wire.Conn, query string) error { asks <- query; return nil }, nil)
	take := func() (all []string) {
		for len(asks) > 0 {
			all = append(all, <-asks)
		}
		return all
	}
	s, other := on(t, db), on(t, plain)
	const poll = 20 * time.Millisecond
	start(t, s, &outbox{}, RelayConfig{Poll: poll})
	for _, what := range []string{"empty", "nothing is due", "leased"} {
		switch what {
		case "nothing is due":
			put(t, other, "orders", newMessage("1"), time.Hour)
		case "leased":
			testkit.Must(plain.Exec(`UPDATE spillway_delayed SET due_at = 0, token = 'another'`))
		}
		for !slices.Contains(take(), nextText(s, "")) { // what a start and a change ask is over
			time.Sleep(poll)
		}
		time.Sleep(2 * poll)
		begun := time.Now()
		take()
		var asked []string
		for len(asked) == 0 { // a busy machine asks late
			time.Sleep(10 * poll)
			asked = take()
		}
		testkit.Check(t, len(asked) <= (int(time.Since(begun)/poll)+1),
			"%s: %d statements in %s", what, len(asked), time.Since(begun))
		for _, query := range asked {
			testkit.Equal(t, what, query, nextText(s, ""))
		}
	}
}
