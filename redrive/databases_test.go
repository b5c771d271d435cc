package redrive_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Decision 12, promise P6: drains of two processes share the letters, and none is published twice.
func TestDrain_twoProcesses(t *testing.T) { onEach(t, testDrain_twoProcesses) }

func testDrain_twoProcesses(t *testing.T, on database) {
	open, out := on.Create(t), &outbox{}
	stores := []*letters.Store{storeOn(t, open()), storeOn(t, open())}
	publish(t, stores[0], "orders.dlq", several(400)...)
	var both sync.WaitGroup
	var redriven atomic.Int64
	for _, store := range stores {
		both.Go(func() {
			report, err := redrive.Drain(context.Background(), store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Concurrency: 3}})
			if err != nil {
				t.Error(err)
			}
			redriven.Add(int64(report.Redriven))
		})
	}
	both.Wait()
	if n := len(out.All()); redriven.Load() != 400 || n != 400 || len(out.IDs()) != 400 {
		t.Errorf("%d redriven, %d published, of %d ids", redriven.Load(), n, len(out.IDs()))
	}
	wantCount(t, stores[0], status(letters.StatusRedriven), 400)
}

// Promise P1: whatever connections are lost during a drain, every letter comes back.
func TestDrain_connectionsLost(t *testing.T) {
	t.Run(postgresSchema.Name, func(t *testing.T) {
		address := postgrestest.Schema(t)
		testDrain_connectionsLost(t, postgrestest.Open(t, address), postgrestest.Open(t, address+"&application_name=spillway-drain"),
			func(observer *sql.DB) error {
				_, err := observer.Exec(`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'spillway-drain'`)
				return err
			})
	})
	t.Run(mysqlDatabase.Name, func(t *testing.T) {
		dsn := mysqltest.Database(t)
		observer := mysqltest.Open(t, dsn)
		observer.SetMaxOpenConns(1) // all others are the drain's
		testDrain_connectionsLost(t, observer, mysqltest.Open(t, dsn), func(observer *sql.DB) error {
			ids, err := observer.Query(`SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()`)
			if err != nil {
				return err
			}
			var all []int64
			for ids.Next() {
				var id int64
				err = errors.Join(err, ids.Scan(&id))
				all = append(all, id)
			}
			err = errors.Join(err, ids.Err(), ids.Close())
			for _, id := range all {
				mysqltest.Kill(t, observer, id)
			}
			return err
		})
	})
}

func testDrain_connectionsLost(t *testing.T, observer, drained *sql.DB, kill func(observer *sql.DB) error) {
	out, store := &outbox{}, storeOn(t, observer)
	publish(t, store, "orders.dlq", several(60)...)
	killed := make(map[string]bool)
	out.Before = func(_ string, msg *message.Message) error {
		if (msg.UUID == "id-5" || msg.UUID == "id-40") && !killed[msg.UUID] {
			// All connections of the drain's pool: the mark of this letter and what comes after find none that works.
			if err := kill(observer); err != nil {
				t.Error(err)
			}
			killed[msg.UUID] = true
		}
		return nil
	}
	draining := storeOn(t, drained)
	eventually(t, "all letters are marked", func() bool {
		_, _ = redrive.Drain(t.Context(), draining, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}, Lease: 50 * time.Millisecond})
		n, err := store.Count(t.Context(), status(letters.StatusRedriven))
		return err == nil && n == 60
	})
	if len(killed) != 2 || len(out.IDs()) != 60 {
		t.Errorf("killed at %v, %d letters came back", killed, len(out.IDs()))
	}
}

// Feature V5, promise P1: two drains at once with disjoint filters bring back every letter that they choose.
func TestDrain_disjointFilters(t *testing.T) { onEach(t, testDrain_disjointFilters) }

func testDrain_disjointFilters(t *testing.T, on database) {
	const each = 1000
	open, out := on.Create(t), &outbox{}
	first := storeOn(t, open())
	publish(t, first, "orders.dlq", fixture.OfTwo(2*each)...)
	var both sync.WaitGroup
	for _, handler := range []string{"a", "b"} {
		store := storeOn(t, open())
		both.Go(func() {
			report, err := redrive.Drain(t.Context(), store, out, redrive.DrainConfig{
				Rules: redrive.Rules{
					Allow:       []string{"orders"},
					Filter:      letters.Filter{Handlers: []string{handler}},
					Concurrency: 4,
				},
			})
			if err != nil || report.Redriven != each {
				t.Errorf("handler %s: %+v, %v", handler, report, err)
			}
		})
	}
	both.Wait()
	wantCount(t, first, letters.Filter{}, 0)
	if n := len(out.All()); n != 2*each || len(out.IDs()) != n {
		t.Errorf("%d published, %d ids", n, len(out.IDs()))
	}
}

// Promise P1: a drain renews the leases of all letters in hand for as long as its publisher takes.
func TestDrain_renewsWhilePublishing(t *testing.T) { onEach(t, testDrain_renewsWhilePublishing) }

func testDrain_renewsWhilePublishing(t *testing.T, on database) {
	db := on.Create(t)()
	store, out := storeOn(t, db), &outbox{}
	publish(t, store, "orders.dlq", several(3)...)
	ends := func() (first, n int64) {
		err := db.QueryRow(`SELECT COALESCE(MIN(leased_until), 0), COUNT(*) FROM spillway_dead_letters WHERE token <> ''`).Scan(&first, &n)
		if err != nil {
			t.Error(err)
		}
		return first, n
	}
	slow := publisherFunc(func(topic string, messages ...*message.Message) error {
		if len(out.All()) == 0 {
			before, n := ends()
			eventually(t, "the leases of all three letters are renewed", func() bool {
				first, still := ends()
				return n == 3 && still == 3 && first > before
			})
		}
		return out.Publish(topic, messages...)
	})
	if r := drain(t, store, slow, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}, Lease: time.Second}); r.Redriven != 3 {
		t.Errorf("%+v", r)
	}
}

// Promises P1, P3: when the context of a drain ends, letters that were not begun are free at once, and do not wait for a
// publisher that is stuck. The letter in hand stays leased until the publisher returns.
func TestDrain_endsWhileAPublisherIsStuck(t *testing.T) {
	onEach(t, testDrain_endsWhileAPublisherIsStuck)
}

func testDrain_endsWhileAPublisherIsStuck(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(5)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	free := 0
	stuck := publisherFunc(func(topic string, messages ...*message.Message) error {
		cancel()
		eventually(t, "the four others are free", func() bool {
			taken, err := store.Take(t.Context(), letters.Filter{}, time.Hour, 10)
			if err != nil {
				t.Error(err)
			}
			free += len(taken)
			return free == 4
		})
		return out.Publish(topic, messages...)
	})
	report, err := redrive.Drain(ctx, store, stuck, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
	if err == nil || report.Redriven != 1 || report.Taken != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// Feature V5, promise P1: a letter that another transaction has locked when its turn comes is not passed over for good: the
// drain ends only when it finds no letter that waits.
func TestDrain_comesBackForLockedLetters(t *testing.T) {
	for _, on := range []database{postgresSchema, mysqlDatabase} {
		t.Run(on.Name, func(t *testing.T) {
			db := on.Create(t)()
			store, out := storeOn(t, db), &outbox{}
			publish(t, store, "orders.dlq", several(3)...)
			writer, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = writer.Rollback() }()
			if _, err := writer.Exec(`UPDATE spillway_dead_letters SET seen = 2 WHERE seq = 1`); err != nil {
				t.Fatal(err)
			}
			out.Before = func(_ string, msg *message.Message) error {
				if msg.UUID == "id-2" {
					return writer.Commit()
				}
				return nil
			}
			if r := drain(t, store, out, orders); r.Redriven != 3 || len(out.IDs()) != 3 || out.All()[2].Msg.UUID != "id-0" {
				t.Errorf("%+v, %v", r, out.IDs())
			}
		})
	}
}

// Promise P1: a message that is no dead letter is kept, as a failure of unknown class.
func TestDrain_notALetter(t *testing.T) { onEach(t, testDrain_notALetter) }

func testDrain_notALetter(t *testing.T, on database) {
	store := on.NewStore(t)
	plain := message.NewMessage("1", []byte("a"))
	plain.Metadata = nil
	publish(t, store, "orders.dlq", plain)
	entries := list(t, store, letters.Filter{Classes: []classify.Class{classify.ClassUnknown}, Since: time.Now().Add(-time.Minute)})
	if len(entries) != 1 || string(entries[0].Letter.Original.Payload) != "a" {
		t.Fatalf("%+v", entries)
	}
	out := &outbox{}
	if r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"repair"}, To: "repair"}}); r.Redriven != 1 {
		t.Fatalf("%+v", r)
	}
	if poison.IsLetter(out.All()[0].Msg) || plain.Metadata != nil {
		t.Error("a failure was made up, or the message changed")
	}
}

// Promise P2: any bytes survive, in the store and on the way back.
func TestDrain_hostileBytes(t *testing.T) { onEach(t, testDrain_hostileBytes) }

func testDrain_hostileBytes(t *testing.T, on database) {
	store := on.NewStore(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	many := message.Metadata{}
	for i := range 10_000 {
		many[fmt.Sprintf("key-%d\x00\xff", i)] = string(all[i%200:])
	}
	messages := map[string]*message.Message{
		"bytes":   {UUID: string(all), Payload: all, Metadata: message.Metadata{string(all): string(all), "": "", "empty": ""}},
		"nothing": {UUID: "nothing"},
		"empty":   {UUID: "empty", Payload: []byte{}},
		"large":   {UUID: "large", Payload: bytes.Repeat(all, 2<<20/256), Metadata: message.Metadata{"a": "b"}},
		"many":    {UUID: "many", Payload: []byte("x"), Metadata: many},
	}
	topic := "dead\x00\xff"
	for _, msg := range messages {
		publish(t, store, topic, poison.Letter{
			Original: msg, Origin: poison.Origin{Topic: "or\xffders\x00", Handler: "h\xff", Key: all},
			Failure: poison.Failure{Class: classify.ClassPermanent},
		}.Encode())
	}
	publish(t, store, "", message.NewMessage("no topic", nil))
	wantCount(t, store, letters.Filter{DeadLetterTopics: []string{topic}, Topics: []string{"or\xffders\x00"}, Handlers: []string{"h\xff"}}, len(messages))
	wantCount(t, store, letters.Filter{IDs: []string{string(all)}}, 1)

	out := &outbox{}
	report := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"or\xffders\x00"}}})
	if report.Redriven != len(messages) || report.Refused != 1 {
		t.Fatalf("%+v", report)
	}
	for _, p := range out.All() {
		want := messages[p.Msg.UUID]
		if want == nil {
			want = messages["bytes"]
		}
		got, err := poison.Decode(withClass(p.Msg))
		if err != nil {
			t.Fatal(err)
		}
		if p.Msg.UUID != want.UUID || !bytes.Equal(p.Msg.Payload, want.Payload) || !bytes.Equal(got.Origin.Key, all) {
			t.Errorf("%.10q changed", p.Msg.UUID)
		}
		if !maps.Equal(got.Original.Metadata, want.Metadata) {
			t.Errorf("metadata of %.10q changed", p.Msg.UUID)
		}
	}
}

// Promises P1, P2: the settings of the connections do not matter to a drain.
func TestDrain_mysqlSettings(t *testing.T) {
	fixture.OnMySQLSettings(t, func(t *testing.T, on database) {
		testDrain_hostileBytes(t, on)
		testDrain_refusedLettersStepBack(t, on)
	})
}

// Promise P1: a letter that steps back or comes again gets a number that is nobody else's, also when many are given out
// meanwhile, and so overwrites none.
func TestDrain_mysqlNumbers(t *testing.T) {
	open := mysqlDatabase.Create(t)
	db := open()
	store := storeOn(t, db)
	publish(t, store, "orders.dlq", several(20)...)
	refusing := &outbox{Before: refuse}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 10 {
				publish(t, store, "orders.dlq", letter(fmt.Sprintf("new-%d-%d", i, j), "{}"))
				_, _ = redrive.Drain(t.Context(), store, refusing, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, PublishAttempts: 1}, Max: 2})
			}
		})
	}
	all.Wait()
	wantCount(t, store, letters.Filter{}, 60)
	ids := make(map[string]bool)
	for _, e := range list(t, store, letters.Filter{}) {
		ids[e.Letter.Original.UUID] = true
		if string(e.Letter.Original.Payload) != "{}" || e.Letter.Origin.Topic != "orders" || e.Seen != 1 {
			t.Errorf("letter %d was overwritten: %+v", e.Seq, e)
		}
	}
	if len(ids) != 60 {
		t.Errorf("%d letters", len(ids))
	}
}

// Promise P4: what List, Take and Drain read at once is bounded in bytes, at least one letter, and all letters come.
func TestDrain_maxRead(t *testing.T) { onEach(t, testDrain_maxRead) }

func testDrain_maxRead(t *testing.T, on database) {
	db := on.Create(t)()
	store, err := letters.NewStore(t.Context(), db, letters.StoreConfig{Service: "shop", MaxRead: 300_000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		size := 90_000
		if i == 4 {
			size = 400_000 // more than MaxRead alone
		}
		publish(t, store, "orders.dlq", letter(fmt.Sprint(i), strings.Repeat("x", size)))
	}
	var pages []int
	for f := (letters.Filter{}); ; {
		page := list(t, store, f)
		if len(page) == 0 {
			break
		}
		pages, f.After = append(pages, len(page)), page[len(page)-1].Seq
	}
	if fmt.Sprint(pages) != "[3 1 1 3 1]" {
		t.Errorf("pages of %v letters", pages)
	}
	for _, want := range []int{3, 1, 1, 3, 1, 0} {
		if taken, err := store.Take(t.Context(), letters.Filter{}, time.Hour, 100); err != nil || len(taken) != want {
			t.Fatalf("%d taken, %v, want %d", len(taken), err, want)
		}
	}
	if _, err := db.Exec(`UPDATE spillway_dead_letters SET leased_until = 0`); err != nil {
		t.Fatal(err)
	}
	out := &outbox{Before: func(string, *message.Message) error {
		var n, bytes int
		err := db.QueryRow(`SELECT COUNT(*), COALESCE(SUM(LENGTH(payload)), 0) FROM spillway_dead_letters WHERE leased_until > 0`).Scan(&n, &bytes)
		if err != nil || n > 1 && bytes > 300_000 {
			t.Errorf("%d letters of %d bytes are in hand, %v", n, bytes, err)
		}
		return nil
	}}
	if r := drain(t, store, out, orders); r.Redriven != 9 {
		t.Errorf("%+v", r)
	}
	if _, err := letters.NewStore(t.Context(), db, letters.StoreConfig{Service: "shop", MaxRead: -1}); err == nil || !strings.Contains(err.Error(), "StoreConfig.MaxRead") {
		t.Error(err)
	}
}

// Feature D6, promise P1: a message of max_allowed_packet less 64 KiB is set aside with the longest story, and comes back as
// it was. A larger one goes to the queue's fallback.
func TestDrain_mysqlLargestMessage(t *testing.T) {
	for _, settings := range []string{"parseTime=true", "interpolateParams=true"} {
		t.Run(settings, func(t *testing.T) {
			db := mysqltest.Open(t, mysqltest.With(mysqltest.Database(t), settings))
			store, fallback := storeOn(t, db), &outbox{}
			var packet int
			if err := db.QueryRow(`SELECT @@max_allowed_packet`).Scan(&packet); err != nil {
				t.Fatal(err)
			}
			queue, err := poison.NewQueue(store, poison.QueueConfig{Fallbacks: []poison.Sink{{Publisher: fallback}}})
			if err != nil {
				t.Fatal(err)
			}
			handler := queue.Middleware(func(*message.Message) ([]*message.Message, error) {
				return nil, classify.Permanent(errors.New(strings.Repeat("a long story ", 1<<20)))
			})
			for id, size := range map[string]int{"largest": packet - 64<<10, "larger": packet} {
				msg := message.NewMessage(id, bytes.Repeat([]byte{0}, size)) // an escaped NUL takes two bytes
				msg.Metadata.Set(poison.KeyOriginalTopic, "orders")
				if _, err := handler(msg); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			if n := len(fallback.All()); n != 1 || fallback.All()[0].Msg.UUID != "larger" {
				t.Errorf("%d letters went to the fallback", n)
			}
			out := &outbox{}
			if r := drain(t, store, out, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"repair"}, To: "repair", By: strings.Repeat("ann", 10_000)}}); r.Redriven != 1 {
				t.Fatalf("%+v", r)
			}
			if got := out.All()[0].Msg; got.UUID != "largest" || len(got.Payload) != packet-64<<10 {
				t.Errorf("%s of %d bytes came back", got.UUID, len(got.Payload))
			}
			list(t, store, status(letters.StatusRedriven))
		})
	}
}
