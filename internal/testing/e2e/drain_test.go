package e2e_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// drains is a subscriber with one message, which drains as the adapters do, or ends as those of other modules do.
type drains struct {
	message.Subscriber
	msg     *message.Message
	foreign bool
	closed  bool
	timeout time.Duration // what it was told
}

func (d *drains) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	if d.foreign {
		out := make(chan *message.Message)
		go func() {
			defer close(out)
			d.msg.SetContext(ctx)
			out <- d.msg
			<-ctx.Done()
		}()
		return out, nil
	}
	drain, out := graceful.Begin(ctx), make(chan *message.Message)
	d.timeout = drain.Timeout
	go func() {
		defer drain.End()
		defer close(out)
		d.msg.SetContext(drain.Work)
		out <- d.msg
		select {
		case <-d.msg.Acked():
			<-drain.Taking.Done()
		case <-d.msg.Nacked():
			<-drain.Taking.Done()
		case <-drain.Work.Done():
		}
	}()
	return out, nil
}

func (d *drains) Close() error { d.closed = true; return nil }

// busy returns a handler that takes some time, unless it is cut off.
func busy(takes time.Duration, outcome error) func(*message.Message) error {
	return func(msg *message.Message) error {
		select {
		case <-time.After(takes):
			return outcome
		case <-msg.Context().Done():
			return msg.Context().Err()
		}
	}
}

// Promise P3: in the drain a handler finishes, as at any time; what waits for a retry goes back at once, uncounted.
func TestDrain(t *testing.T) {
	const takes = 2 * time.Second
	once := middleware.Backoff{Initial: time.Minute, Max: time.Minute}
	for name, row := range map[string]struct {
		handle  func(*message.Message) error
		acked   bool
		letters int
		want    time.Duration // that closing takes
	}{
		"succeeds":                {acked: true, want: takes / 2, handle: busy(takes, nil)},
		"fails for good":          {acked: true, letters: 1, want: takes / 2, handle: busy(takes, classify.Permanent(errors.New("no such order")))},
		"fails, and would wait":   {want: takes / 2, handle: busy(takes, errors.New("refused"))},
		"waits for its next turn": {want: 0, handle: func(*message.Message) error { return errors.New("refused") }},
		"never ends": {want: graceful.Timeout, handle: func(msg *message.Message) error {
			<-msg.Context().Done()
			return msg.Context().Err()
		}},
	} {
		for _, foreign := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/foreign %t", name, foreign), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					letters, sub := &testkit.Kept{}, &drains{msg: message.NewMessage("1", nil), foreign: foreign}
					ch := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: letters,
						Retry: middleware.RetryConfig{Attempts: 5, Backoff: once}}))
					router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
					ch.Attach(router)
					router.AddConsumerHandler("billing", "orders", sub, row.handle)
					ended := make(chan error, 1)
					go func() { ended <- router.Run(context.Background()) }()
					time.Sleep(takes / 2)
					began := time.Now()
					testkit.Is(t, router.Close(), nil)
					testkit.Equal(t, "closing took", time.Since(began), row.want)
					testkit.Is(t, <-ended, nil)
					synctest.Wait()
					select {
					case <-sub.msg.Acked():
						testkit.Check(t, row.acked, "it is acked")
					case <-sub.msg.Nacked():
						testkit.Check(t, !row.acked, "it is nacked")
					}
					testkit.Check(t, len(letters.Taken()) == row.letters && sub.closed,
						"%d letters, closed: %t", len(letters.Taken()), sub.closed)
				})
			})
		}
	}
}

// The time of a drain fits into that of the router, or the router's start says why not.
func TestDrainTimeout(t *testing.T) {
	for _, row := range []struct {
		drain, router, want time.Duration
		refused             string
	}{
		{want: graceful.Timeout},
		{router: time.Second, want: time.Second / 2},
		{drain: 20 * time.Second, want: 20 * time.Second},
		{drain: -1, want: 0},
		{drain: 30 * time.Second, refused: "Config.DrainTimeout is 30s, and the router gives up closing after its CloseTimeout of 30s"},
		{drain: 2 * time.Second, router: time.Second, refused: "CloseTimeout of 1s"},
	} {
		ch := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: &testkit.Kept{}, DrainTimeout: row.drain}))
		router := testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: row.router}, watermill.NopLogger{}))
		ch.Attach(router)
		sub := &drains{msg: message.NewMessage("1", nil)}
		router.AddConsumerHandler("billing", "orders", sub, func(*message.Message) error { return nil })
		err := testkit.Starts(t, router)
		testkit.Check(t, row.refused != "" || err == nil && sub.timeout == row.want,
			"%+v: %s, %v", row, sub.timeout, err)
		testkit.Check(t, row.refused == "" || err != nil && strings.Contains(err.Error(), row.refused),
			"%+v: %v", row, err)
	}
}

// Promise P1, feature C7, decision 19: a handler's statements that fail because of a pooler in transaction mode say
// nothing of its message.
func TestPoolerDeadLettersNone(t *testing.T) {
	b := newBench(t, true)
	behind := services.PgBouncer(t, postgrestest.Schema(t), "pool_mode = transaction", "default_pool_size = 2")
	var address atomic.Pointer[sql.DB]
	address.Store(postgrestest.Open(t, behind))
	other := postgrestest.Open(t, behind) // another instance of the service, which prepares the same statements
	testkit.Must(other.Exec(`CREATE TABLE stock (id text)`))
	const count = `SELECT count(*) FROM stock WHERE id = $1`
	var each [2]*sql.Tx // has a session of the pooler
	for i := range each {
		each[i] = testkit.Must(other.Begin())
		testkit.Must(each[i].Exec(count, "x"))
	}
	for _, tx := range each {
		testkit.NoError(t, tx.Rollback())
	}
	ch := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: b.Letters, Breaker: &breaker.Config{}}))
	var failed, handled atomic.Int64
	defer b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		var n int
		if err := address.Load().QueryRow(count, msg.UUID).Scan(&n); err != nil {
			failed.Add(1)
			return nil, err
		}
		handled.Add(1)
		return nil, nil
	})()
	const messages = 147
	for i := range messages {
		b.Publish(message.NewMessage(fmt.Sprint(i), nil))
	}
	testkit.Eventually(t, "the breaker holds", func() bool { return failed.Load() > 5 && !ch.Health().OK })
	testkit.Equal(t, "dead letters", len(b.Waiting()), 0)
	address.Store(postgrestest.Open(t, behind+"&default_query_exec_mode=exec"))
	testkit.Eventually(t, "all are handled", func() bool { return handled.Load() == messages })
	testkit.Equal(t, "dead letters", len(b.Waiting()), 0)
}

// Decision 14, promise P1: New notices the pooler before a message is handled, and names the remedy.
func TestPoolerAtStart(t *testing.T) {
	behind := services.PgBouncer(t, postgrestest.Schema(t), "pool_mode = transaction", "default_pool_size = 8", "max_client_conn = 500")
	config := func(add string) spillway.Config {
		return spillway.Config{DB: postgrestest.Open(t, behind+add), Service: "shop"}
	}
	testkit.Says(t, testkit.Err(spillway.New(t.Context(), config(""))), "default_query_exec_mode=exec")
	testkit.Must(config("&default_query_exec_mode=exec").DB.Exec(`CREATE TABLE applied (id text, mode text)`))
	for _, mode := range []string{"exec", "simple_protocol"} {
		b := newBench(t, true)
		const messages = 40
		for i := range messages {
			b.Publish(message.NewMessage(fmt.Sprint(mode, i), nil))
		}
		var handled atomic.Int64
		for range 2 { // gochannel gives each of them all messages
			ch, err := spillway.New(t.Context(), config("&default_query_exec_mode="+mode))
			testkit.Require(t, err == nil, "with %s: %v", mode, err)
			defer b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
				_, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO applied VALUES ($1, $2)`, msg.UUID, mode)
				if err == nil {
					handled.Add(1)
				}
				return nil, err
			})()
		}
		testkit.Eventually(t, "all are applied", func() bool { return handled.Load() >= messages })
		db, all, once, set := config("&default_query_exec_mode=exec").DB, 0, 0, 0
		testkit.Eventually(t, "all are committed", func() bool {
			err := db.QueryRow(`SELECT count(*), count(DISTINCT id), (SELECT count(*) FROM spillway_dead_letters) FROM applied WHERE mode = $1`, mode).Scan(&all, &once, &set)
			return err == nil && all >= messages
		})
		testkit.Check(t, all == messages && once == messages && set == 0,
			"with %s: %d applied, of %d messages, %d letters", mode, all, once, set)
	}
}
