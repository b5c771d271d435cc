package delayed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed/waiting"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
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
		s := openStore(t, d, address)
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

// What cannot be is refused, and said without the bytes of an attacker. A nil argument is an error with a sentence.
func TestRefuses(t *testing.T) {
	s := on(t, databases.SQLite.New(t))
	long := strings.Repeat("t", maxTopic+1)
	var none context.Context
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"nil message": {s.Put(t.Context(), "orders", nil, 0), " nil"},
		"nil context": {s.Put(none, "orders", newMessage("1"), 0), " nil"},
		"nil store":   {(*Store)(nil).Put(t.Context(), "orders", newMessage("1"), 0), " nil"},
		"no topic":    {s.Put(t.Context(), "", newMessage("\x00"), 0), ""},
		"long topic":  {s.Put(t.Context(), long, newMessage("1"), 0), ""},
		"long delay":  {s.Put(t.Context(), "orders", newMessage("1"), MaxDelay+1), ""},
		"ended":       {s.Put(ended(), "orders", newMessage("1"), 0), ""},
		"NewStore":    {testkit.Err(NewStore(none, s.db.DB(), "")), " nil"},
	} {
		testkit.Check(t, c.err != nil && strings.Contains(c.err.Error(), c.says) &&
			!strings.Contains(c.err.Error(), "\x00"),
			"%s: %v", name, c.err)
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
	s := openStore(t, d, address)
	var packet int
	testkit.NoError(t, s.db.DB().QueryRow(`SELECT @@max_allowed_packet`).Scan(&packet))
	for range 2 {
		testkit.Is(t, s.Put(t.Context(), "orders", message.NewMessage("1", make([]byte, packet)), 0), classify.ErrTooLarge)
	}
	put(t, s, "orders", message.NewMessage("1", make([]byte, packet-16<<10)), 0)
	// A driver that writes the values into the statement doubles this one.
	doubling := openStore(t, d, mysqltest.With(address, "interpolateParams=true"))
	err := doubling.Put(t.Context(), "orders", message.NewMessage("1", make([]byte, packet*3/4)), 0)
	testkit.Is(t, err, classify.ErrTooLarge)
}

type claim struct{ db *sql.DB }

func (claim) Holds(*message.Message) bool { return false }
func (c claim) Locks(db *sql.DB) bool     { return c.db == db }

// Who holds the database himself is told so.
func TestPut_within(t *testing.T) {
	d := databases.SQLite
	s := openStore(t, d, d.Create(t))
	s.db.DB().SetMaxOpenConns(1)
	ctx := chain.WithClaim(t.Context(), claim{s.db.DB()})
	testkit.Is(t, s.Put(ctx, "orders", newMessage("1"), 0), waiting.ErrHeld)
	testkit.Is(t, testkit.Err(s.Waiting(ctx)), waiting.ErrHeld)
	testkit.NoError(t, s.Put(chain.WithClaim(t.Context(), claim{new(sql.DB)}), "orders", newMessage("1"), 0))
}

// A table, a database and a service that cannot be the store's are refused.
func TestNewStore(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		db := d.Open(t, address)
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

// whatWaits is what waits in a store, as topics with their numbers of messages.
func whatWaits(t *testing.T, s *Store) (found []string) {
	t.Helper()
	for _, w := range testkit.Must(s.Waiting(t.Context())) {
		found = append(found, fmt.Sprintf("%q %d", w.Topic, w.Messages))
	}
	return found
}

func TestWaiting(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := openStore(t, d, address)
		testkit.Equal(t, "waiting", len(whatWaits(t, s)), 0)
		put(t, s, "a", newMessage("1"), time.Hour)
		put(t, s, "\xff", newMessage("2"), -time.Hour)
		put(t, s, "a", newMessage("3"), 2*time.Hour)
		testkit.Equal(t, "waiting", strings.Join(whatWaits(t, s), ", "), `"a" 2, "\xff" 1`)
		all := testkit.Must(s.Waiting(t.Context()))
		a, b := all[0].Next, all[1].Next
		testkit.Check(t, a <= time.Hour+s.tick && a >= 59*time.Minute, "a is due in %s", a)
		testkit.Check(t, b <= s.tick && b >= -time.Minute, "the other one is due in %s", b)
		var rows []string
		for i := range waiting.MaxTopics + 5 {
			rows = append(rows, `(`+shopService[d.Name]+`, '`+strconv.Itoa(i)+`', '', '', 0, 0, 0)`)
		}
		testkit.Must(s.db.DB().Exec(`INSERT INTO spillway_delayed
			(service, topic, id, metadata, size, due_at, ready_at) VALUES ` +
			strings.Join(rows, ",")))
		found := whatWaits(t, s)
		testkit.Check(t, len(found) == waiting.MaxTopics && found[0] == `"a" 2`, "%d topics, first %s", len(found), found[0])
	})
}

// Services on one table have each their own: what one put no other's relay publishes, nor counts.
func TestServices(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		billing := testkit.Must(NewStore(t.Context(), d.Open(t, address), "billing"))
		all := []*Store{openStore(t, d, address), billing}
		for _, s := range all {
			put(t, s, "orders", newMessage(s.Service()), 0)
		}
		for _, s := range all {
			testkit.Equal(t, s.Service(), strings.Join(whatWaits(t, s), ", "), `"orders" 1`)
			testkit.Equal(t, "left", len(testkit.Must(waiting.Left(t.Context(), s.DB(), s.Service()))), 1)
			time.Sleep(2 * s.tick)
			b := testkit.Must(s.take(t.Context(), 10, time.Minute, nil))
			testkit.Check(t, len(b.rows) == 1 && b.rows[0].msg.UUID == s.Service(), "%s: %+v", s.Service(), b)
		}
	})
}

// Feature R4, promise P1: numbers that a restore left behind the rows are a fault of the table, with its remedy. They
// are none of the message, which would become a dead letter.
func TestNumbersBehindTheRows(t *testing.T) {
	for _, kind := range []databases.Database{databases.Postgres, databases.MariaDB} {
		t.Run(kind.Name, func(t *testing.T) {
			db := kind.New(t)
			s := on(t, db)
			put(t, s, "orders", newMessage("a"), time.Hour)
			db.SetMaxOpenConns(1)
			databases.Exec(t, db, map[string]string{"postgres": `ALTER TABLE spillway_delayed ALTER seq RESTART`,
				"mariadb": `SET insert_id = 1`}[kind.Name])
			err := s.Put(t.Context(), "orders", newMessage("b"), time.Hour)
			var own *database.OwnKeyError
			testkit.Require(t, errors.As(err, &own) && outage.Unavailable(err) && own.Table == "spillway_delayed", "put: %v", err)
			databases.Exec(t, db, own.Remedy)
			put(t, s, "orders", newMessage("b"), time.Hour)
			testkit.Equal(t, "rows", kept(t, s), 2)
		})
	}
}
