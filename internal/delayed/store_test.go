package delayed

import (
	"context"
	"database/sql"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// hostile is messages with contents that no producer rules out.
func hostile() []*message.Message {
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	odd := []string{"", "\x00", "'; DROP TABLE spillway_delayed; --", "?", "$1", "now()", `\`, "\xff\xfe", "é́", "a ", "A", string(everyByte), strings.Repeat("x", 70000)}
	var messages []*message.Message
	for i, s := range odd {
		msg := message.NewMessage(s, []byte(s))
		for j, k := range odd {
			if j != i {
				msg.Metadata[k] = s
			}
		}
		messages = append(messages, msg)
	}
	none := message.NewMessage("none", nil)
	empty := message.NewMessage("empty", []byte{})
	return append(messages, none, empty, message.NewMessage("large", make([]byte, 3<<20)))
}

type callerKey struct{}

// What was put is published with the same bytes, to the same topic.
func TestRoundTrip(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := newStore(t, d, address)
		topics := []string{"orders", "\x00\xff'; --", "?", strings.Repeat("t", maxTopic)}
		want := hostile()
		for i, msg := range want {
			msg.SetContext(context.WithValue(context.Background(), callerKey{}, "of the caller"))
			put(t, s, topics[i%len(topics)], msg, 0)
		}
		out := &outbox{}
		start(t, s, out, RelayConfig{})
		eventually(t, "all are published", func() bool { return len(out.all()) == len(want) })
		for i, p := range out.all() {
			if p.topic != topics[i%len(topics)] || p.msg.UUID != want[i].UUID || !reflect.DeepEqual(p.msg.Payload, want[i].Payload) ||
				!reflect.DeepEqual(p.msg.Metadata, want[i].Metadata) {
				t.Errorf("message %d, %.20q, is changed", i, want[i].UUID)
			}
			testkit.Check(t, p.msg.Context() != nil && p.msg.Context().Value(callerKey{}) == nil,
				"message %d has a context that is not its own", i)
		}
		eventually(t, "nothing is kept", func() bool { return kept(t, s) == 0 })
	})
}

func TestPut_refuses(t *testing.T) {
	s := on(t, databases.SQLite.New(t))
	for name, err := range map[string]error{
		"nil message": s.Put(t.Context(), "orders", nil, 0),
		"no topic":    s.Put(t.Context(), "", newMessage("1"), 0),
		"long topic":  s.Put(t.Context(), strings.Repeat("t", maxTopic+1), newMessage("1"), 0),
		"long delay":  s.Put(t.Context(), "orders", newMessage("1"), MaxDelay+1),
		"long id":     s.Put(t.Context(), "", newMessage("\x00"), 0),
		"ended":       s.Put(ended(), "orders", newMessage("1"), 0),
		"nil store":   (*Store)(nil).Put(t.Context(), "orders", newMessage("1"), 0),
	} {
		testkit.Check(t, err != nil && !strings.Contains(err.Error(), "\x00"), "%s: %q", name, err)
	}
	put(t, s, "orders", newMessage("1"), MaxDelay)
	put(t, s, "orders", newMessage("2"), -MaxDelay)
	testkit.Equal(t, "kept", kept(t, s), 2)
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A message that does not fit is refused before the server hangs up.
func TestPut_tooLarge(t *testing.T) {
	d := databases.MariaDB
	address := d.Create(t)
	s := newStore(t, d, address)
	var packet int
	testkit.NoError(t, s.db.DB().QueryRow(`SELECT @@max_allowed_packet`).Scan(&packet))
	for range 2 {
		testkit.Is(t, s.Put(t.Context(), "orders", message.NewMessage("1", make([]byte, packet)), 0), classify.ErrTooLarge)
	}
	put(t, s, "orders", message.NewMessage("1", make([]byte, packet-16<<10)), 0)
	// A driver that writes the values into the statement doubles this one.
	doubling := newStore(t, d, mysqltest.With(address, "interpolateParams=true"))
	err := doubling.Put(t.Context(), "orders", message.NewMessage("1", make([]byte, packet*3/4)), 0)
	testkit.Is(t, err, classify.ErrTooLarge)
}

type claim struct{ db *sql.DB }

func (claim) Holds(*message.Message) bool { return false }
func (c claim) Locks(db *sql.DB) bool     { return c.db == db }

// Who holds the database himself is told so.
func TestPut_within(t *testing.T) {
	d := databases.SQLite
	s := newStore(t, d, d.Create(t))
	s.db.DB().SetMaxOpenConns(1)
	ctx := chain.WithClaim(t.Context(), claim{s.db.DB()})
	testkit.Is(t, s.Put(ctx, "orders", newMessage("1"), 0), errHeld)
	testkit.Is(t, testkit.Err(s.Waiting(ctx)), errHeld)
	testkit.NoError(t, s.Put(chain.WithClaim(t.Context(), claim{new(sql.DB)}), "orders", newMessage("1"), 0))
}

// Ten processes that start at once make the table once. A table, a database and a service that cannot be the store's
// are refused.
func TestNewStore(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		var all sync.WaitGroup
		for range 10 {
			db := d.Open(t, address)
			all.Go(func() {
				testkit.Is(t, testkit.Err(NewStore(t.Context(), db, "shop")), nil)
			})
		}
		all.Wait()
		db := d.Open(t, d.Create(t))
		_, err := NewStore(t.Context(), db, "")
		testkit.Check(t, (err == nil) == (d.Name == "sqlite"), "without a service: %v", err)
		for _, statement := range []string{`DROP TABLE IF EXISTS spillway_delayed`, `CREATE TABLE spillway_delayed (seq INTEGER PRIMARY KEY, name VARCHAR(10))`} {
			testkit.Must(db.Exec(statement))
		}
		testkit.Says(t, testkit.Err(NewStore(t.Context(), db, "shop")), "without column")
	})
	for want, db := range map[string]*sql.DB{"no file": databases.SQLite.Open(t, ":memory:"), "*sql.DB is nil": nil} {
		testkit.Says(t, testkit.Err(NewStore(t.Context(), db, "")), want)
	}
}

func TestWaiting(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := newStore(t, d, address)
		if waiting, err := s.Waiting(t.Context()); err != nil || len(waiting) != 0 {
			t.Fatal(waiting, err)
		}
		put(t, s, "a", newMessage("1"), time.Hour)
		put(t, s, "\xff", newMessage("2"), -time.Hour)
		put(t, s, "a", newMessage("3"), 2*time.Hour)
		waiting, err := s.Waiting(t.Context())
		testkit.Require(t, err == nil && len(waiting) == 2, "%v %v", waiting, err)
		a, b := waiting[0], waiting[1]
		if a.Topic != "a" || a.Messages != 2 || a.Next > time.Hour+s.dialect.tick || a.Next < 59*time.Minute {
			t.Errorf("%+v", a)
		}
		testkit.Check(t, b.Topic == "\xff" && b.Messages == 1 && b.Next <= s.dialect.tick && b.Next >= -time.Minute,
			"%+v", b)
		var rows []string
		for i := range maxWaiting + 5 {
			rows = append(rows, `(`+shopService[d.Name]+`, '`+strconv.Itoa(i)+`', '', '', 0, 0, 0)`)
		}
		testkit.Must(s.db.DB().Exec(`INSERT INTO spillway_delayed (service, topic, id, metadata, size, due_at, ready_at) VALUES ` + strings.Join(rows, ",")))
		if waiting, err = s.Waiting(t.Context()); err != nil || len(waiting) != maxWaiting || waiting[0].Topic != "a" {
			t.Error(len(waiting), err)
		}
	})
}

// Services on one table have each their own: what one put no other's relay publishes, nor counts.
func TestServices(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		shop := newStore(t, d, address)
		billing := testkit.Must(NewStore(t.Context(), d.Open(t, address), "billing"))
		for service, s := range map[string]*Store{"shop": shop, "billing": billing} {
			testkit.NoError(t, s.Put(t.Context(), "orders", newMessage(service), 0))
		}
		for service, s := range map[string]*Store{"shop": shop, "billing": billing} {
			if waiting, err := s.Waiting(t.Context()); err != nil || len(waiting) != 1 || waiting[0].Messages != 1 {
				t.Error(service, waiting, err)
			}
			time.Sleep(2 * s.dialect.tick)
			if b, err := s.take(t.Context(), 10, time.Minute, front); err != nil || len(b.rows) != 1 || b.rows[0].msg.UUID != service {
				t.Errorf("%s: %+v, %v", service, b, err)
			}
		}
	})
}

// Promise P1: what is left in a database is found without a Store, by its service, and the search makes no table.
func TestLeft(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
		for range 2 { // the first search makes no table either
			if waiting, err := Left(t.Context(), db, "shop"); err != nil || len(waiting) != 0 {
				t.Fatalf("without a table: %v, %v", waiting, err)
			}
		}
		testkit.Check(t, testkit.Err(db.Exec(`SELECT 1 FROM spillway_delayed`)) != nil, "the search made the table")
		s := newStore(t, d, address)
		testkit.NoError(t, s.Put(t.Context(), "orders.billing.retry", message.NewMessage("1", nil), time.Hour))
		waiting, err := Left(t.Context(), db, s.Service())
		if err != nil || len(waiting) != 1 || waiting[0].Topic != "orders.billing.retry" || waiting[0].Messages != 1 {
			t.Errorf("%v, %v", waiting, err)
		}
		if waiting, err := Left(t.Context(), db, "another"); err != nil || len(waiting) != 0 {
			t.Errorf("of another service: %v, %v", waiting, err)
		}
	})
}
