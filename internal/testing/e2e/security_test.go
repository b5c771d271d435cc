package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Statements of docs/security.md that no other test holds.

// A publisher to a live topic that takes another message's id is applied in its place; the other is not lost, but
// dead-lettered as invalid.
func TestSecurityTakenID(t *testing.T) {
	b := newBench(t, false)
	stop := b.Run(b.Channel().Attach, func(msg *message.Message) ([]*message.Message, error) { return nil, b.Apply(msg) })
	defer stop()
	b.Publish(message.NewMessage("order-1", []byte("forged")))
	b.Eventually("the forged one is applied", func() bool { return len(b.Effects()) == 1 })
	b.Publish(message.NewMessage("order-1", []byte("genuine")))
	b.Eventually("the genuine one is dead-lettered", func() bool { return len(b.Waiting()) == 1 })
	letter := b.Waiting()[0].Letter
	testkit.Check(t, letter.Failure.Reason == classify.ReasonKeyReused && string(letter.Original.Payload) == "genuine",
		"%s: %s", letter.Failure.Reason, letter.Original.Payload)
}

// A person who sends messages that fail as if the downstream was unavailable cannot stop the good ones among them, and
// the own ones end.
func TestSecurityPretendedOutage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBench(t, false)
	ch := b.Channel(func(c *spillway.Config) {
		c.Breaker = &breaker.Config{Probe: time.Millisecond, MaxProbe: 10 * time.Millisecond, Doubt: 100 * time.Millisecond}
	})
	stop := b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		if msg.Metadata.Get("callback") != "" {
			return nil, fmt.Errorf("call back: %w", syscall.ECONNREFUSED)
		}
		return nil, b.Apply(msg)
	})
	defer stop()
	messages := shop.Numbered(100)
	for i := range 10 {
		messages[i].Metadata.Set("callback", "nowhere.example")
	}
	random.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	for _, msg := range messages {
		b.Publish(msg)
	}
	b.Eventually("the good ones are handled", func() bool { return len(b.Effects()) == 90 })
	for i := 0; len(b.Waiting()) < 10; i++ { // as long as there is traffic, each of the others ends
		b.Publish(message.NewMessage(fmt.Sprintf("good-%d", i), nil))
		b.Eventually("the next is handled", func() bool { return len(b.Effects()) == 91+i })
	}
}

// Decision 13: while the database only reads, messages are held. One line says why, and what to do.
func TestDatabaseBeginsToReadOnly(t *testing.T) {
	var only atomic.Bool
	address := testkit.Must(pgx.ParseConfig(postgrestest.Schema(t)))
	db := stdlib.OpenDB(*address, stdlib.OptionResetSession(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf(`SET default_transaction_read_only = %t`, only.Load()))
		return err
	}))
	t.Cleanup(func() { _ = db.Close() })
	testkit.Must(db.Exec(`CREATE TABLE effects (id text)`))
	log := &testkit.Log{}
	dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{Service: "shop", DB: db, Logger: log}))
	live := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	testkit.RunRouter(t, log, func(r *message.Router) {
		dlc.Attach(r)
		r.AddConsumerHandler("billing", "orders", live, func(msg *message.Message) error {
			_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), `INSERT INTO effects VALUES ($1)`, msg.UUID)
			return err
		})
	})
	effects := func() (n int) {
		testkit.NoError(t, db.QueryRow(`SELECT count(*) FROM effects`).Scan(&n))
		return n
	}
	send := func(id string) { testkit.NoError(t, live.Publish("orders", message.NewMessage(id, nil))) }
	send("1")
	testkit.Eventually(t, "an effect", func() bool { return effects() == 1 })
	only.Store(true)
	send("2")
	testkit.Eventually(t, "the line of the outage", func() bool { return len(log.Errors()) > 0 })
	only.Store(false)
	testkit.Eventually(t, "the held message", func() bool { return effects() == 2 })
	lines := log.Errors()
	testkit.Check(t, len(lines) == 1 && strings.Contains(fmt.Sprint(lines[0].Err),
		"the database only reads"), "%d lines: %v", len(lines), lines)
	found := testkit.Must(dlc.Letters().List(t.Context(), letters.Filter{}))
	testkit.Check(t, len(found) == 0, "%d letters of a healthy message", len(found))
}

// refused runs a router with one handler, which must not start, and returns why.
func refused(t *testing.T, pub message.Publisher, attach func(*message.Router)) string {
	t.Helper()
	router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	attach(router)
	router.AddHandler("billing", "orders", gochannel.NewGoChannel(gochannel.Config{}, nil), "out", pub, message.PassthroughHandler)
	if err := testkit.Starts(t, router); err != nil {
		return err.Error()
	}
	return "it runs"
}

// Conventions: Attach and Plugin return no error at once, so nil is one of Run, and never a panic.
func TestAttachNil(t *testing.T) {
	ps := gochannel.NewGoChannel(gochannel.Config{}, nil)
	channel := func() *spillway.Channel {
		return testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: ps}))
	}
	none, twice := (*spillway.Channel)(nil), channel()
	none.Attach(nil)
	testkit.Check(t, channel().Plugin(nil) != nil, "Plugin(nil)")
	twice.Attach(nil)
	out := gochannel.NewGoChannel(gochannel.Config{}, nil)
	for want, attach := range map[string]func(*message.Router){
		"the Channel is nil":                  none.Attach,
		"Attach was called with a nil router": twice.Attach,
	} {
		got := refused(t, out, attach)
		testkit.Check(t, strings.Contains(got, want), "%s: %s", want, got)
	}
}

// Feature D4: the dead letters' publisher must not be a handler's too: the router closes it when that handler stops.
func TestSharedPublisherIsRefused(t *testing.T) {
	ps := gochannel.NewGoChannel(gochannel.Config{}, nil)
	transformed := testkit.Must(message.MessageTransformPublisherDecorator(func(*message.Message) {})(ps))
	for _, pub := range []message.Publisher{ps, transformed} {
		dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: ps}))
		got := refused(t, pub, dlc.Attach)
		testkit.Check(t, strings.Contains(got, "is a handler's publisher too"), "%T: %s", pub, got)
	}
}

// Bad input: a nil context is an error with a sentence, with and without a database.
func TestNewWithoutContext(t *testing.T) {
	b := newBench(t, false)
	for _, config := range []spillway.Config{{Publisher: &shop.Outputs{}}, {DB: b.DB, Service: "shop"}} {
		_, err := spillway.New(nil, config) //lint:ignore SA1012 it is the test
		testkit.Says(t, err, "give context.Background()")
	}
	_, err := idempotency.NewStore(nil, b.DB, "") //lint:ignore SA1012 it is the test
	testkit.Says(t, err, "give context.Background()")
}
