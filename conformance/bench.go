package conformance

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/outputs"
	"github.com/watermill-spillway/spillway/poison"
)

// patience is how long a condition is waited for. Brokers rebalance and reconnect meanwhile.
const patience = testkit.Patience

// bench is what one feature is tested on: a topic, a topic for outputs, a database with an effects table, and a count
// of what was set aside.
type bench struct {
	*testing.T
	target Target
	topic  string // the live topic
	outs   string // what the handler's outputs go to
	group  string // of the live handler
	path   string // of the database
	db     *sql.DB
	keys   idempotency.Store
	dead   message.Publisher // of dead letters; it outlives routers
	live   message.Publisher // of producers and redrives

	placed    atomic.Int32 // dead letters whose placement was confirmed
	discarded atomic.Int32
	attempts  atomic.Int32 // failed handler invocations
	duplicate atomic.Int32 // messages that the receiver absorbed

	variantOf string // the case, in a row that has cases

	processes []*process // that consume in the bench's place, where it is for faults
}

const handlerName = "billing"

func newBench(t *testing.T, target Target) *bench {
	t.Helper()
	b := newBareBench(t, target)
	b.create(b.topic, b.outs)
	b.dead, b.live = b.publisher(), b.publisher()
	return b
}

// newBareBench is one without topics and publishers.
func newBareBench(t *testing.T, target Target) *bench {
	t.Helper()
	name := "conformance-" + strings.ToLower(rand.Text()[:10])
	b := &bench{T: t, target: target, topic: name, outs: name + "-out", group: name}
	b.path = filepath.Join(t.TempDir(), "effects.db")
	b.openEffects()
	return b
}

func (b *bench) create(topics ...string) {
	b.Helper()
	if b.target.CreateTopic == nil {
		return
	}
	for _, topic := range topics {
		b.target.CreateTopic(b.T, topic)
	}
}

// publisher returns a publisher that is closed after the test.
func (b *bench) publisher() message.Publisher {
	b.Helper()
	pub := b.target.Publisher(b.T)
	b.Cleanup(func() {
		if err := pub.Close(); err != nil {
			b.Error(err)
		}
	})
	return pub
}

// config is the configuration of a channel with everything in it, and waits short enough for tests.
func (b *bench) config() spillway.Config {
	return spillway.Config{
		Publisher:   b.dead,
		Idempotency: b.keys,
		Naming:      b.target.Naming,
		Retry: middleware.RetryConfig{
			Attempts: 3, Backoff: middleware.Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond},
			Hooks: middleware.RetryHooks{OnAttempt: func(context.Context, middleware.Attempt) { b.attempts.Add(1) }},
		},
		Outputs: outputs.Config{Backoff: middleware.Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond}},
		Queue: poison.QueueConfig{
			Origin: b.target.Origin,
			Hooks: poison.Hooks{
				OnDeadLetter: func(context.Context, poison.Letter) { b.placed.Add(1) },
				OnDiscard:    func(context.Context, poison.Letter) { b.discarded.Add(1) },
			},
		},
		Receiver: &idempotency.ReceiverConfig{
			Consumer: b.group, // benches may share a store, and have the same ids
			Hooks:    idempotency.Hooks{OnDuplicate: func(context.Context, idempotency.Key) { b.duplicate.Add(1) }},
		},
	}
}

func (b *bench) channel(change ...func(*spillway.Config)) *spillway.Channel {
	b.Helper()
	config := b.config()
	for _, f := range change {
		f(&config)
	}
	ch, err := spillway.New(context.Background(), config)
	if err != nil {
		b.Fatal(err)
	}
	return ch
}

// start runs a router with one handler on the live topic, protected by ch. The returned function closes it; it is
// called at the end of the test in any case.
func (b *bench) start(ch *spillway.Channel, handle message.HandlerFunc, more ...func(*message.Router)) (stop func()) {
	b.Helper()
	return b.startWith(ch, b.target.Publisher(b.T), handle, more...)
}

// startWith is start with a publisher for the handler's outputs, which the router closes.
func (b *bench) startWith(ch *spillway.Channel, outputs message.Publisher, handle message.HandlerFunc,
	more ...func(*message.Router)) (stop func()) {
	b.Helper()
	router := b.router()
	ch.Attach(router)
	router.AddHandler(handlerName, b.topic, b.target.Subscriber(b.T, b.group), b.outs, outputs, handle)
	for _, f := range more {
		f(router)
	}
	return b.run(router)
}

func (b *bench) router() *message.Router {
	b.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, watermill.NopLogger{})
	if err != nil {
		b.Fatal(err)
	}
	return router
}

func (b *bench) run(router *message.Router) (stop func()) {
	b.Helper()
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	stop = sync.OnceFunc(func() {
		if err := errors.Join(router.Close(), <-done); err != nil {
			b.Errorf("the router ended with: %v", err)
		}
	})
	select {
	case <-router.Running():
	case err := <-done:
		b.Fatalf("the router did not start: %v", err)
	}
	b.Cleanup(stop)
	return stop
}

// ids publishes a message for each id, with metadata and a payload that tell of it.
func (b *bench) ids(ids ...string) {
	b.Helper()
	for _, id := range ids {
		b.publish(newMessage(id))
	}
}

func newMessage(id string) *message.Message {
	msg := message.NewMessage(id, []byte(`{"id":"`+id+`"}`))
	msg.Metadata.Set("tenant", "acme")
	return msg
}

func (b *bench) publish(messages ...*message.Message) {
	b.Helper()
	done := make(chan error, 1)
	go func() { done <- b.live.Publish(b.topic, messages...) }()
	select {
	case err := <-done:
		if err != nil {
			b.Fatalf("publish to the live topic: %v", err)
		}
	case <-time.After(patience):
		b.Fatalf("publish to the live topic: no answer within %s", patience)
	}
}

// wantOnce checks that each id took effect, and none twice.
func (b *bench) wantOnce(ids ...string) {
	b.Helper()
	effects := b.effects()
	for _, id := range ids {
		if effects[id] != 1 {
			b.Errorf("%q took effect %d times", id, effects[id])
		}
		delete(effects, id)
	}
	if len(effects) > 0 {
		b.Errorf("unexpected effects %v", effects)
	}
}

func (b *bench) until(what string, condition func() bool, state ...func() string) {
	b.Helper()
	begun := time.Now()
	next := begun // a question to a database costs what it asks about: many rows wait for seconds at the same time
	testkit.Eventually(b, what, func() bool {
		now := time.Now()
		if now.Before(next) {
			return false
		}
		next = now.Add(min(now.Sub(begun)/16, 50*time.Millisecond))
		return condition()
	}, append(state, func() string {
		effects := fmt.Sprint(b.effects())
		return fmt.Sprintf("effects %.2000s, set aside %d, discarded %d, failed attempts %d, duplicates %d",
			effects, b.placed.Load(), b.discarded.Load(), b.attempts.Load(), b.duplicate.Load())
	})...)
}

func (b *bench) untilPlaced(n int32) {
	b.Helper()
	b.until(fmt.Sprintf("%d are set aside", n), func() bool { return b.placed.Load() >= n })
}

func (b *bench) untilApplied(ids ...string) {
	b.Helper()
	b.until(fmt.Sprintf("%q took effect", ids), func() bool {
		effects := b.effects()
		for _, id := range ids {
			if effects[id] == 0 {
				return false
			}
		}
		return true
	})
}

// proxy stands between a process and the broker, in this process.
func (b *bench) proxy() *faultproxy.Proxy {
	b.Helper()
	p, err := faultproxy.New(b.target.Address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	return p
}
