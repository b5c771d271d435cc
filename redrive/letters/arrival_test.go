package letters_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Promises P1, P2, decision 12: what is not surely the same letter is one of its own. Empty is not none.
func TestStore_othersAreNeverMerged(t *testing.T) { onEach(t, testStore_othersAreNeverMerged) }

func testStore_othersAreNeverMerged(t *testing.T, on fixture.Database) {
	store := on.NewStore(t)
	empty, none := letter("1", ""), letter("2", "")
	empty.Payload, none.Payload = []byte{}, nil
	different := []*message.Message{
		letter("1", "a"), letter("2", "a"), letter("1", "b"), letter("1", "a", from("refunds")), letter("1", "a", redrivenTimes(1)),
		letter("1", "a", func(l *poison.Letter) { l.Origin.Handler = "mailer" }),
		letter("1", "a", func(l *poison.Letter) { l.Origin.ConsumerGroup = "g" }),
		letter("1", "a", func(l *poison.Letter) { l.Original.Metadata["tenant"] = "bob" }),
		letter("", "a"), letter("", "a"), letter("", "a"), empty, none,
		message.NewMessage("1", []byte("a")), // no letter at all
	}
	publish(t, store, "orders.dlq", different...)
	wantCount(t, store, letters.Filter{}, len(different))
	publish(t, store, "other.dlq", message.NewMessage("1", []byte("a")))
	wantCount(t, store, letters.Filter{}, len(different)+1)
	nils := map[bool]int{}
	for _, l := range list(t, store, letters.Filter{IDs: []string{"1", "2"}}) {
		if len(l.Original.Payload) == 0 {
			nils[l.Original.Payload == nil]++
		}
	}
	testkit.Check(t, nils[true] == 1 && nils[false] == 1, "without a payload, and with an empty one, are %v", nils)
}

// Promise P1: a letter that arrives again waits again, and no mark of an earlier one swallows it.
func TestStore_arrivesAgain(t *testing.T) { onEach(t, testStore_arrivesAgain) }

func testStore_arrivesAgain(t *testing.T, on fixture.Database) {
	store, ctx := on.NewStore(t), t.Context()
	marked := letters.Statuses()
	marked = marked[:len(marked)-1] // no Mark sets the last one, StatusErased
	for _, s := range marked {
		id, behind := string(s), "behind "+string(s)
		publish(t, store, "orders.dlq", letter(id, "a"), letter(behind, "b"))
		taken := take(t, store, letters.Filter{IDs: []string{id}}, 1)
		testkit.NoError(t, fixture.Mark(ctx, store, taken[0], s, letters.Act{}))
		publish(t, store, "orders.dlq", letter(id, "a"))
		want, first := letters.StatusWaiting, s == letters.StatusWaiting
		if s == letters.StatusQuarantined || s == letters.StatusRefused {
			want, first = s, true
		}
		pair := list(t, store, letters.Filter{IDs: []string{id, behind}, Statuses: []letters.Status{want, letters.StatusWaiting}})
		testkit.Check(t, len(pair) == 2 && (pair[0].Original.UUID == id) == first && pair[0].Seen+pair[1].Seen == 3 &&
			string(pair[0].Original.Payload) != string(pair[1].Original.Payload), "after %s: %+v", s, pair)
	}
	wantCount(t, store, letters.Filter{}, 2*len(marked)-2)
	wantCount(t, store, letters.Filter{Statuses: letters.Statuses()}, 2*len(marked))
	publish(t, store, "orders.dlq", letter("1", "a"))
	taken, _ := fixture.Take(ctx, store, letters.Filter{IDs: []string{"1"}}, time.Hour, 1)
	publish(t, store, "orders.dlq", letter("1", "a"))
	testkit.Is(t, fixture.Mark(ctx, store, taken[0], letters.StatusRedriven, letters.Act{}), letters.ErrLeaseLost)
	wantCount(t, store, letters.Filter{IDs: []string{"1"}}, 1)
}

// Decision 18, promise P1: writers of the same letters, in opposite orders, make one row of each, and all count.
func TestStore_sameLetterAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, on fixture.Database) { testStore_sameLetterAtOnce(t, on.Create(t)) })
	t.Run("serializable", func(t *testing.T) {
		address := postgrestest.Schema(t) + "&default_transaction_isolation=serializable"
		testStore_sameLetterAtOnce(t, func() *sql.DB { return postgrestest.Open(t, address) })
	})
}

func testStore_sameLetterAtOnce(t *testing.T, open func() *sql.DB) {
	db := open()
	stores := []*letters.Store{storeOn(t, db), storeOn(t, open())}
	const writers, each = 8, 20
	var publishers sync.WaitGroup
	for i := range writers {
		publishers.Go(func() {
			batch, size := several(each), 1 // one by one, or together and in opposite orders
			if i%2 == 1 {
				slices.Reverse(batch)
				size = each
			}
			for some := range slices.Chunk(batch, size) {
				testkit.Is(t, stores[i/2%2].Publish("orders.dlq", some...), nil)
			}
		})
	}
	publishers.Wait()
	for _, e := range list(t, stores[0], letters.Filter{}) {
		testkit.Check(t, e.Seen == writers, "letter %d was seen %d times", e.Seq, e.Seen)
	}
	groups := testkit.Must(stores[0].Groups(t.Context(), letters.Filter{}))
	testkit.Check(t, len(groups) == 1 && groups[0].Count == each && groups[0].Arrived == writers*each, "%+v", groups)
	wantNumbers(t, db, stores[0])
}

// Feature V9: letters published at once are there whole, counted once. A refused one fails for its caller alone.
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
	testkit.Must(hidden.Of(stores[0]).DB().Exec(refuse))
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
					testkit.Check(t, refused == (err != nil) &&
						(err == nil || strings.Contains(err.Error(), "refused")), "letter %d: %v", i, err)
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
		testkit.Check(t, l.Seen == 1+i%3/2 && string(l.Original.Payload) == fmt.Sprint("payload ", i) &&
			l.Origin.Handler == causes[i%len(causes)],
			"letter %d arrived %d times: %q of %s", i, l.Seen, l.Original.Payload, l.Origin.Handler)
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
