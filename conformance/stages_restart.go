package conformance

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// Promise P3: a router that closes while messages wait gives them back at once and uncounted; the next one handles them
// when they are due, by the time that they were told at first.
func (b *bench) closedInStage() {
	delay := 4 * time.Second
	late := b.closedBeforeDue(delay)
	if late > delay/2 { // so it is where the broker stood still for as long: a wait that begins anew grows with the delay
		delay = 30 * time.Second
		late = newBench(b.T, b.target).closedBeforeDue(delay)
	}
	if late > delay/2 {
		b.Errorf("a message came %s after it was due: its wait began anew", late)
	}
}

// closedBeforeDue returns how late a message came whose router closed after half of its wait.
func (b *bench) closedBeforeDue(delay time.Duration) (latest time.Duration) {
	var j journal
	var l ledger
	var staged, held atomic.Int32
	change := []func(*spillway.Config){
		b.staged(delay), l.keep, afterStage(func(context.Context, stages.Waiting) { staged.Add(1) }),
		func(c *spillway.Config) {
			next := c.Stages.Subscriber
			c.Stages.Subscriber = func(topic, group string) (message.Subscriber, error) {
				sub, err := next(topic, group)
				return arriving{sub, &held}, err
			}
		},
	}
	if b.target.Holds {
		change = append(change, stored(b.delays()))
	}
	handle := b.noting(&j, func(stage int, _ *message.Message) error {
		if stage == 0 {
			return errNotYet
		}
		return nil
	})
	ids := numbered("waiting", 3)
	stop := b.startStaged(b.channel(change...), handle)
	b.ids(ids...)
	b.until("all have waited for half of their time", func() bool {
		return int(staged.Load()) >= len(ids) && (held.Load() > 0 || b.target.Holds || b.target.Stages != nil) &&
			time.Since(j.of("")[0].ended) > delay/2
	})
	stop()
	if n := len(b.effects()); n != 0 {
		b.Errorf("%d took effect before they were due", n)
	}
	b.startStaged(b.channel(change...), handle)
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	b.wantNeverEarly(&j, delay)
	if n := b.placed.Load(); n != 0 {
		b.Errorf("%d letters", n)
	}
	due := map[string][]string{} // more than one where a broker delivers all again to the next router
	for id, tooks := range l.byID() {
		for _, t := range tooks {
			due[id] = append(due[id], t.Metadata[poison.KeyRetryDueAt])
		}
	}
	for _, v := range j.of("") {
		if v.stage() == 0 {
			continue
		}
		if at := v.Metadata[poison.KeyRetryDueAt]; v.Metadata[poison.KeyAttempts] != "1" ||
			!slices.Contains(due[v.UUID], at) {
			b.Errorf("%q came after %q attempts, due at %s instead of %s", v.UUID, v.Metadata[poison.KeyAttempts], at,
				due[v.UUID])
		}
		latest = max(latest, v.begun.Sub(v.due()))
	}
	return latest
}

// arriving counts what a subscriber delivers.
type arriving struct {
	message.Subscriber
	n *atomic.Int32
}

func (a arriving) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := a.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for msg := range in {
			a.n.Add(1)
			out <- msg // the stage takes all
		}
	}()
	return out, nil
}

// Promise P1: messages in stages that no handler has any more are reported at start-up, with topic and count.
func (b *bench) abandonedStage() {
	store := b.delays()
	b.variant("in the store", func(b *bench) {
		b.abandoned(0, func(topic string, msg *message.Message) error {
			return store.Inside().Put(context.Background(), topic, msg, time.Hour)
		}, stored(store))
	})
	b.variant("in topics", func(b *bench) {
		_, lists := b.live.(interface {
			ListWaiting(ctx context.Context, prefix string) (map[string]int, error)
		})
		if !lists {
			b.Fatalf(`the publisher has no method ListWaiting: give it one, or pin the case: Pins["%s/in topics"] = "K19: why"`,
				b.target.row.id)
		}
		b.create(b.stageTopic(time.Hour))
		b.abandoned(time.Hour, func(topic string, msg *message.Message) error { return b.live.Publish(topic, msg) })
	})
}

// abandoned puts messages where a handler of another time had them wait.
func (b *bench) abandoned(delay time.Duration, put func(topic string, msg *message.Message) error,
	change ...func(*spillway.Config)) {
	topic, ids := b.stageTopic(delay), numbered("left", 3)
	for _, id := range ids {
		if err := put(topic, newMessage(id)); err != nil {
			b.Fatal(err)
		}
	}
	var log testkit.Log
	ch := b.channel(append([]func(*spillway.Config){b.staged(shortStage), logTo(&log)}, change...)...)
	router := b.router()
	ch.Attach(router)
	_, err := ch.Stages().AddConsumerHandler(router, "another", b.topic, b.target.Subscriber(b.T, b.group),
		func(*message.Message) error {
			return nil
		})
	if err != nil {
		b.Fatal(err)
	}
	b.run(router)
	const words = "no handler of this process consumes"
	if !log.Has(words, "stage_topic", topic) || !log.Has(words, "messages", len(ids)) {
		b.Errorf("no line names %d messages in %q: %v", len(ids), topic, log.Errors())
	}
}

func logTo(log *testkit.Log) func(*spillway.Config) {
	return func(c *spillway.Config) { c.Logger = log }
}
