package conformance

import (
	"context"
	"errors"
	"fmt"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/middleware/outputs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/downstream"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/poison"
)

// consumer is the process that consumes.
type consumer struct {
	b *bench
	setting
	going  chan struct{} // closed when nothing halts any more
	client *downstream.Client

	handling atomic.Int64 // messages

	mu       sync.Mutex
	deadly   map[string]*message.Message // as they were delivered last
	setAside []*message.Message          // of those, refused by the crash limit
}

// tell writes an event for the parent.
func (c *consumer) tell(event ...any) {
	_, _ = os.Stdout.WriteString(eventPrefix + fmt.Sprintln(event...))
}

// eventPrefix tells events from what the test writes.
const eventPrefix = "event: "

// halt stops the message here if it was asked to. It does not heed the context, as many a handler, but tells of its
// end.
func (c *consumer) halt(ctx context.Context, step, id string) {
	if c.Halt[id] != step {
		return
	}
	c.tell("at", step, id)
	select {
	case <-c.going:
	case <-ctx.Done():
		c.tell("gone", id)
		<-c.going
	}
}

func (c *consumer) run() (stop func()) {
	router := c.b.router()
	router.AddMiddleware(c.outermost)
	if c.Downstream != "" {
		c.client = downstream.NewClient(c.Downstream, 10*time.Second)
		c.b.Cleanup(c.client.Close)
	}
	ch := c.b.channel(c.configure)
	ch.Attach(router)
	outputs := announcing{c.b.target.Publisher(c.b.T), c.published}
	if len(c.Stages) == 0 {
		router.AddHandler(handlerName, c.b.topic, c.source(), c.b.outs, outputs, c.handle)
	} else if _, err := ch.Stages().AddHandler(router, handlerName, c.b.topic, c.source(), c.b.outs, outputs,
		c.handle); err != nil {
		c.b.Fatal(err)
	}
	c.b.Cleanup(c.finish) // after the router's end, and before that of what handlers use
	return c.b.run(router)
}

// finish waits for messages that the router did not wait for. Watermill's router misses a message that arrives while it
// closes, and redisstream gives redelivered ones no context that ends. Such a message is held for as long as it may be.
func (c *consumer) finish() {
	idle := 0
	for deadline := time.Now().Add(patience); idle < 3 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if idle++; c.handling.Load() > 0 {
			idle = 0
		}
	}
}

func (c *consumer) source() message.Subscriber {
	if c.SourceThrough != "" {
		return c.b.target.SubscriberThrough(c.b.T, c.b.group, c.SourceThrough)
	}
	return c.b.target.Subscriber(c.b.T, c.b.group)
}

func (c *consumer) configure(config *spillway.Config) {
	if c.DeadThrough != "" {
		c.b.dead = c.b.target.Through(c.b.T, c.DeadThrough)
	} else {
		c.b.dead = c.b.target.Publisher(c.b.T)
	}
	c.b.Cleanup(func() {
		if err := c.b.dead.Close(); err != nil {
			c.b.Logf("close the publisher of dead letters: %v", err) // its connection may be gone
		}
	})
	config.Publisher = refusing{c.b.dead, func(_ string, msg *message.Message) error {
		c.halt(msg.Context(), stepLetter, msg.UUID)
		return nil
	}}
	// An output waits for its broker's return as long as that may take here.
	config.Outputs = outputs.Config{Attempts: 30,
		Backoff: middleware.Backoff{Initial: 100 * time.Millisecond, Max: 2 * time.Second}}
	if c.Limit {
		config.CrashLimit = &crashlimit.Config{
			Store: c.b.deliveries(), Heartbeat: 500 * time.Millisecond, Hooks: crashlimit.Hooks{OnExceeded: c.refuses},
		}
	}
	if len(c.Stages) > 0 {
		c.stage(config)
	}
	if c.Guarded {
		config.Retry.Attempts = 3 // a call whose connection was lost under it says nothing of the next
		config.Breaker = &breaker.Config{Hooks: breaker.Hooks{
			OnChange: func(change breaker.Change) { c.tell("breaker", change.To) }}}
	}
	if c.Wait > 0 {
		config.Retry.Backoff = always(c.Wait)
	}
	config.Retry.Hooks.OnAttempt = func(_ context.Context, a middleware.Attempt) {
		if a.Err != nil {
			c.tell("failed", a.Number)
		}
	}
	config.Queue.Hooks = poison.Hooks{
		OnDeadLetter: func(ctx context.Context, l poison.Letter) {
			c.tell("placed", l.Original.UUID)
			c.halt(ctx, stepPlaced, l.Original.UUID)
		},
		OnPublishError: func(_ context.Context, l poison.Letter, err error) {
			c.tell("refused", l.Original.UUID)
			c.b.Logf("the letter of %q is refused: %v", l.Original.UUID, err)
		},
	}
}

// outermost stands around everything of ours.
func (c *consumer) outermost(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		c.handling.Add(1)
		defer c.handling.Add(-1)
		id, ctx := msg.UUID, msg.Context()
		c.tell("received", id)
		c.receives(msg)
		go func() {
			select {
			case <-msg.Acked():
				c.tell("acked", id)
			case <-msg.Nacked():
			}
			c.tell("settled", id)
		}()
		c.halt(ctx, stepReceived, id)
		out, err := next(msg)
		if err == nil {
			c.halt(ctx, stepCommitted, id)
		}
		return out, err
	}
}

var errDown = errors.New("the downstream is down")

// What becomes of a message is in its id.
const (
	badPrefix     = "bad"                 // fails for good
	waitingPrefix = "waiting"             // fails while the downstream is down
	flakyPrefix   = "flaky"               // fails before its last stage
	latePrefix    = badPrefix + "-late"   // fails in all stages
	leavingPrefix = "leaving"             // fails when its context ends, and waits for that
	deadlyPrefix  = badPrefix + "-deadly" // ends the process
)

func (c *consumer) handle(msg *message.Message) ([]*message.Message, error) {
	id := msg.UUID
	c.halt(msg.Context(), stepHandling, id)
	switch {
	case strings.HasPrefix(id, deadlyPrefix):
		c.die(id)
	case strings.HasPrefix(id, latePrefix):
		return nil, classify.Transient(errNever)
	case strings.HasPrefix(id, badPrefix):
		return nil, classify.Permanent(errNever)
	case strings.HasPrefix(id, flakyPrefix) && inside.Poison.StageOf(msg).Number < len(c.Stages):
		return nil, errNotYet
	case strings.HasPrefix(id, waitingPrefix) && c.down():
		return nil, classify.Transient(errDown)
	case strings.HasPrefix(id, leavingPrefix):
		c.tell("waits", id)
		select {
		case <-c.going:
		case <-msg.Context().Done():
			c.tell("gone", id)
			return nil, msg.Context().Err()
		}
	}
	if c.client != nil {
		if err := c.client.Call(msg.Context(), id); err != nil {
			return nil, err
		}
	}
	if err := c.b.apply(msg); err != nil {
		return nil, err
	}
	c.halt(msg.Context(), stepWritten, id)
	return []*message.Message{message.NewMessage("", []byte(outputOf+id))}, nil
}

func (c *consumer) down() bool {
	_, err := os.Stat(c.Down)
	return err == nil
}

// outputOf begins the payload of an output; the id of its source follows.
const outputOf = "of "

func (c *consumer) published(output *message.Message) {
	c.halt(output.Context(), stepOutput, strings.TrimPrefix(string(output.Payload), outputOf))
}

// announcing is a publisher that tells what it has published.
type announcing struct {
	message.Publisher
	published func(*message.Message)
}

func (p announcing) Publish(topic string, messages ...*message.Message) error {
	if err := p.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	for _, msg := range messages {
		p.published(msg)
	}
	return nil
}
