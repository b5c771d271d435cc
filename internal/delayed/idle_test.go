package delayed

import (
	"slices"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/internal/testkit/wire"
)

// asked notes what a database is asked.
type asked struct {
	mu  sync.Mutex
	all []string
}

func (a *asked) note(_ *wire.Conn, query string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, query)
	return nil
}

func (a *asked) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}

// An idle relay asks one thing per Poll: of an empty store, of one in which nothing is due yet, and of one whose rows
// others have.
func TestIdle(t *testing.T) {
	d := databases.SQLite
	address := d.Create(t)
	plain := d.Open(t, address)
	db, w := wire.Open(t, "sqlite", address)
	watched := &asked{}
	w.Set(watched.note, nil)
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
		for !slices.Contains(watched.take(), s.statements.next) { // what a start and a change ask is over
			time.Sleep(poll)
		}
		time.Sleep(2 * poll)
		begun := time.Now()
		watched.take()
		var asked []string
		for len(asked) == 0 { // a busy machine asks late
			time.Sleep(10 * poll)
			asked = watched.take()
		}
		// A look that takes long on a busy machine is followed by the question what time it is, which reads no table.
		asked = slices.DeleteFunc(asked, func(query string) bool { return query == s.statements.now })
		testkit.Check(t, len(asked) <= (int(time.Since(begun)/poll)+1),
			"%s: %d statements in %s", what, len(asked), time.Since(begun))
		for _, query := range asked {
			testkit.Equal(t, what, query, s.statements.next)
		}
	}
}
