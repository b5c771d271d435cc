package letters_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

// killing is what a process reseals, until it ends itself: so long after so many transactions, or at its end.
type killing struct {
	Driver, Address string
	Steps           int
	After           time.Duration
}

func (k killing) reseal() error {
	// A trigger of the test calls it in the middle of a transaction.
	err := sqlite.RegisterScalarFunction("kill_self", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		child.Kill()
		return nil, nil
	})
	if err != nil {
		return err
	}
	db := testkit.Must(sql.Open(k.Driver, k.Address))
	ctx, stop := child.Context()
	defer stop()
	s := testkit.Must(seal.New(testkit.Must(seal.ParseKeyring(testkit.Keyring("k2", "k1"))), "tenant"))
	store := testkit.Must(letters.NewStore(ctx, db, letters.Config{Service: "shop", Seal: s}))
	steps := 0
	_, err = hidden.Of(store).Reseal(ctx, letters.Filter{}, letters.Act{By: "ada"}, func(inside.Resealed) {
		if steps++; steps == k.Steps {
			time.AfterFunc(k.After, child.Kill)
		}
	})
	if err == nil {
		child.Kill()
	}
	return err
}

// Feature D14: a Reseal that is killed leaves each letter with one envelope. Run again it reseals the rest once.
func TestStore_resealKilled(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		k1, _ := fixture.Sealer(t, "k1")
		const n = 400
		want := map[string]*message.Message{}
		var clear, old []*message.Message
		for i := range n {
			msg := secretLetter(fmt.Sprint("letter-", i))
			if want[msg.UUID] = msg; i%2 == 0 {
				clear = append(clear, msg)
			} else {
				old = append(old, msg)
			}
		}
		publish(t, storeOn(t, db), "orders.dlq", clear...)
		publish(t, sealedStore(t, db, k1), "orders.dlq", old...)
		both, _ := fixture.Sealer(t, "k2", "k1")
		store := sealedStore(t, db, both)

		// resealed judges all letters, and returns how many have the new key.
		resealed := func() (done int) {
			t.Helper()
			all := list(t, store, letters.Filter{Limit: letters.MaxLimit})
			seen := map[string]bool{}
			for _, l := range all {
				msg := want[l.Original.UUID]
				testkit.Require(t, msg != nil && !seen[l.Original.UUID],
					"%q is there twice, or is none of the letters", l.Original.UUID)
				seen[l.Original.UUID] = true
				switch key := l.SealKey; {
				case key == "k2":
					done++
					wantSealed(t, store, l, "k2", msg)
				case l.Sealed:
					wantSealed(t, store, l, "k1", msg)
				case string(l.Original.Payload) != `{"card":"`+card+`","of":"`+msg.UUID+`"}` || l.Original.Metadata["customer"] != "Ada Lovelace "+msg.UUID:
					t.Errorf("%s is neither sealed nor as it was: %q %v", msg.UUID, l.Original.Payload, l.Original.Metadata)
				}
			}
			testkit.Require(t, len(seen) == n, "%d letters, want %d", len(seen), n)
			keys := testkit.Must(hidden.Of(store).SealKeys(t.Context()))
			for _, k := range keys {
				testkit.Check(t, k.Key != "k2" || k.Letters == done,
					"%d letters are counted under the new key, and %d have it", k.Letters, done)
			}
			return done
		}
		kill := func(k killing) {
			t.Helper()
			k.Driver, k.Address = child.Driver(d.Name), address
			child.Killed(t, k)
		}
		if d.Name == databases.SQLite.Name { // in a transaction: at its 26th letter, and at its 50th event
			for _, trigger := range []string{
				fmt.Sprintf(`AFTER UPDATE OF payload ON spillway_letter_bodies WHEN NEW.body = %d`, list(t, store, letters.Filter{IDs: []string{"letter-50"}})[0].Seq),
				`AFTER INSERT ON spillway_letter_events WHEN NEW.kind = 'resealed' AND (SELECT COUNT(*) FROM spillway_letter_events WHERE kind = 'resealed') = 50`,
			} {
				testkit.Must(db.Exec(`CREATE TRIGGER kill_it ` + trigger + ` BEGIN SELECT kill_self(); END`))
				kill(killing{})
				testkit.Must(db.Exec(`DROP TRIGGER kill_it`))
				done := resealed()
				testkit.Check(t, done == 0, "killed in the first transaction, %d letters are resealed", done)
			}
		}
		before := 0
		for _, k := range []killing{{Steps: 1}, {Steps: 1, After: time.Millisecond}, {Steps: 1, After: 5 * time.Millisecond}, {Steps: 2, After: 2 * time.Millisecond}} {
			kill(k)
			done := resealed()
			testkit.Check(t, done >= before,
				"killed after %d transactions and %s, %d letters are resealed, before it were %d", k.Steps, k.After,
				done, before)
			before = done
		}
		after := 0
		testkit.Eventually(t, "all is resealed", func() bool { // a server may roll back the killed transaction later
			some := testkit.Must(store.Reseal(t.Context(), letters.Filter{}, letters.Act{By: "ada"}))
			after += some
			return resealed() == n
		})
		t.Logf("%d letters were resealed by processes that were killed, %d after", before, after)
		var events, of int
		testkit.NoError(t, db.QueryRow(`SELECT COUNT(*), COUNT(DISTINCT message) FROM spillway_letter_events
WHERE kind = 'resealed'`).Scan(&events, &of))
		testkit.Check(t, events == n && of == n, "%d letters were resealed %d times", of, events)
	})
}

// once is keys that call a function when they are asked for the current one again: after letters were read.
type once struct {
	seal.Keys
	asked int
	then  func()
}

func (o *once) Current(ctx context.Context) (seal.Key, error) {
	if o.asked++; o.asked == 2 {
		o.then()
	}
	return o.Keys.Current(ctx)
}

// Feature D14: an erased letter names no key, and Reseal leaves it out, also if it is erased while Reseal works on it.
func TestStore_resealErased(t *testing.T) { onEach(t, testStore_resealErased) }

func testStore_resealErased(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	k1, _ := fixture.Sealer(t, "k1")
	publish(t, sealedStore(t, db, k1), "orders.dlq", secretLetter("before"), secretLetter("meanwhile"), secretLetter("kept"))
	publish(t, storeOn(t, db), "orders.dlq", secretLetter("clear"))
	erase := func(ids ...string) {
		t.Helper()
		erased := testkit.Returns(t, inside.Erased{Letters: len(ids)})
		erased(hidden.Of(storeOn(t, db)).Erase(t.Context(), letters.Filter{IDs: ids}, erasing, inside.EraseOptions{}))
	}
	erase("before")
	counts, err := hidden.Of(storeOn(t, db)).SealKeys(t.Context())
	testkit.Check(t, err == nil && fmt.Sprint(counts) == "[{ 2} {k1 2}]", "keys %v, %v", counts, err)
	ring := testkit.Must(seal.ParseKeyring(testkit.Keyring("k2", "k1")))
	both := testkit.Must(seal.New(&once{Keys: ring, then: func() { erase("meanwhile") }}, "tenant"))
	store := sealedStore(t, db, both)
	testkit.Returns(t, 2)(store.Reseal(t.Context(), letters.Filter{}, letters.Act{By: "ada"}))
	counts, err = hidden.Of(store).SealKeys(t.Context())
	testkit.Check(t, err == nil && fmt.Sprint(counts) == "[{ 2} {k2 2}]", "keys %v, %v", counts, err)
	erased := list(t, store, letters.Filter{Statuses: []letters.Status{letters.StatusErased}})
	testkit.Require(t, len(erased) == 2, "%d letters are erased", len(erased))
	for _, l := range erased {
		testkit.Check(t, !l.Sealed && len(l.Original.Payload)+len(l.Original.Metadata) <= 0,
			"an erased letter has %q %v", l.Original.Payload, l.Original.Metadata)
	}
	for _, id := range []string{"kept", "clear"} {
		wantSealed(t, store, list(t, store, letters.Filter{IDs: []string{id}})[0], "k2", secretLetter(id))
	}
	testkit.Returns(t, 0)(store.Reseal(t.Context(), letters.Filter{}, letters.Act{}))
}
