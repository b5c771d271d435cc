package letters_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: letters that are published at the same time, by callers of two processes, are all there with their
// payloads, counted once, whether they are new or not. A letter that the database refuses fails for its caller alone.
func TestStore_together(t *testing.T) { onEach(t, testStore_together) }

func testStore_together(t *testing.T, on fixture.Database) {
	open := on.Create(t)
	stores := []*letters.Store{storeOn(t, open()), storeOn(t, open())}
	publish(t, stores[0], "orders.dlq", letter("first", "{}"))
	publish(t, stores[1], "orders.dlq", letter("second", "{}"))
	refuse := `ALTER TABLE spillway_dead_letters ADD CONSTRAINT refused CHECK (size < 5000)`
	if on.Name == sqliteFile.Name {
		refuse = `CREATE TRIGGER refused BEFORE INSERT ON spillway_dead_letters WHEN NEW.size >= 5000 BEGIN SELECT RAISE(ABORT, 'refused'); END`
	}
	testkit.Must(stores[0].Inside().DB().Exec(refuse))
	const n, callers = 120, 40
	causes := []string{"billing", "mailer", "stock"}
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := c; i < n; i += callers {
				payload, refused := fmt.Sprint("payload ", i), i%17 == 0
				if refused {
					payload = strings.Repeat("x", 5000)
				}
				msg := letter(fmt.Sprint("id-", i), payload, fixture.By(causes[i%len(causes)]))
				for s := range 1 + i%3/2 { // a third of them twice
					err := stores[(i+s)%2].Publish("orders.dlq", msg)
					if refused != (err != nil) || err != nil && !strings.Contains(err.Error(), "refused") {
						t.Errorf("letter %d: %v", i, err)
					}
				}
			}
		})
	}
	all.Wait()
	found := make(map[string]letters.Letter)
	for _, l := range list(t, stores[0], letters.Filter{Limit: letters.MaxLimit}) {
		found[l.Original.UUID] = l
	}
	seen := 0
	for i := range n {
		l, stored := found[fmt.Sprint("id-", i)]
		if want := i%17 != 0; stored != want {
			t.Fatalf("letter %d is stored: %t", i, stored)
		} else if !want {
			continue
		}
		if l.Seen != 1+i%3/2 || string(l.Original.Payload) != fmt.Sprint("payload ", i) || l.Origin.Handler != causes[i%len(causes)] {
			t.Errorf("letter %d arrived %d times: %q of %s", i, l.Seen, l.Original.Payload, l.Origin.Handler)
		}
		seen += l.Seen
	}
	groups := testkit.Must(stores[1].Groups(t.Context(), letters.Filter{}))
	counted, arrived := 0, 0
	for _, g := range groups {
		counted, arrived = counted+g.Count, arrived+g.Arrived
	}
	if counted != len(found) || arrived != seen+2 { // first and second
		t.Errorf("%d of %d letters are counted, %d of %d arrivals", counted, len(found), arrived, seen+2)
	}
}
