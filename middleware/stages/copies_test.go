package stages_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/redelivering"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// calls counts the calls of a handler, by id and stage.
type calls struct {
	mu sync.Mutex
	by map[string]map[int]int
}

func (c *calls) add(msg *message.Message) (stage int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stage = poison.Inside().StageOf(msg).Number
	if c.by[msg.UUID] == nil {
		c.by[msg.UUID] = map[int]int{}
	}
	c.by[msg.UUID][stage]++
	return stage
}

// redelivered is a run of messages that fail in all of their stages, over a pub/sub that redelivers.
type redelivered struct {
	pubsub    *redelivering.PubSub
	says      time.Duration // what the stages' subscribers say of its redelivery time; less than 0 is nothing
	delays    []time.Duration
	messages  int
	instances int
	takes     time.Duration // a call out of a stage
	lasts     time.Duration // the run
}

// run returns the calls, and how many letters there are of how many messages.
func (r redelivered) run(t testing.TB, log *lines) (*calls, int, int) {
	c, kept := &calls{by: map[string]map[int]int{}}, &letters{kept: map[string]poison.Letter{}}
	live := newBroker()
	var stops []func()
	ending := make(chan struct{})
	for range max(r.instances, 1) {
		s := newStaging(t.(*testing.T), stages.Config{
			Stages: stages.Delays(r.delays...), Publisher: r.pubsub,
			Subscriber: func(string, string) (message.Subscriber, error) { return r.pubsub.Subscriber(r.says), nil },
		}, log, newQueue(t, kept))
		s.broker, s.letters = live, kept
		s.again()
		s.handle("billing", "orders", func(msg *message.Message) error {
			if c.add(msg) > 0 {
				select {
				case <-time.After(r.takes):
				case <-ending:
				}
			}
			return errBoom
		})
		s.run()
		stops = append(stops, s.stop)
	}
	for i := range r.messages {
		testkit.NoError(t, live.Publish("orders", newMessage(fmt.Sprint(i))))
	}
	time.Sleep(r.lasts)
	close(ending)
	for _, stop := range stops {
		stop()
	}
	return c, kept.n, len(kept.all())
}

// check fails if a message was lost, handled twice in a stage, or dead-lettered twice.
func (r redelivered) check(t testing.TB, log *lines) {
	c, n, distinct := r.run(t, log)
	testkit.Check(t, n == r.messages && distinct == r.messages && r.pubsub.Left() <= 0,
		"%d letters of %d messages, of %d that were published; %d are left", n, distinct, r.messages, r.pubsub.Left())
	for id, by := range c.by {
		for stage := range len(r.delays) + 1 {
			testkit.Check(t, by[stage] == 1, "%s was handled in stage %d %d times", id, stage, by[stage])
		}
	}
}

const s5, m1, m2 = 5 * time.Second, time.Minute, 2 * time.Minute

// Feature R5b: a stage that is longer than the broker's redelivery time multiplies no message, also with two instances.
// The first copy of a subscriber whose time is not known is in the log, with the remedy, and shortens its holds.
func TestStagesLongerThanRedelivery(t *testing.T) {
	jetstream := func(after time.Duration, parallel int) *redelivering.PubSub {
		p := redelivering.New(after)
		p.Parallel, p.Ends = parallel, true
		return p
	}
	redis := redelivering.New(m1)
	redis.Ahead, redis.InPlace = 3, true
	short, stages := redelivering.New(4*time.Second), []time.Duration{s5, m1, m2}
	short.Parallel = 40
	for name, r := range map[string]redelivered{
		"as JetStream, two instances": {pubsub: jetstream(30*time.Second, 1), says: 30 * time.Second, instances: 2,
			delays: stages},
		"as JetStream, told wrong": {pubsub: jetstream(2*time.Second, 40), says: 24 * time.Hour, delays: stages},
		"as JetStream, slow handler": {pubsub: jetstream(30*time.Second, 3), says: 30 * time.Second,
			takes: 9 * time.Second, delays: stages},
		"as Redis, two instances": {pubsub: redis, says: m1, instances: 2, delays: stages},
		"unknown and short":       {pubsub: short, says: -1, delays: []time.Duration{m1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &lines{}
				r.messages, r.lasts = 20, 20*time.Minute
				r.check(t, log)
				if r.pubsub != short {
					return
				}
				told := log.count("delivered a message again that is held") == 1 && log.count("RedeliveryTime") == 1
				testkit.Check(t, told && short.Copies() <= 2*r.messages, "%d copies, %q", short.Copies(), log.all())
			})
		})
	}
}

// Feature R5b: whatever the broker's redelivery time, its client and what its subscriber says, a message is handled
// once in each stage, and becomes one letter.
func TestRedeliveryProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := redelivering.New(rapid.SampledFrom([]time.Duration{time.Second, 2 * time.Second, 7 * time.Second, 30 * time.Second}).Draw(rt, "after"))
		p.Parallel = rapid.SampledFrom([]int{1, 2, 40}).Draw(rt, "parallel")
		p.Ahead = rapid.SampledFrom([]int{p.Parallel, p.Parallel + 2, 1000}).Draw(rt, "ahead")
		p.Ends, p.InPlace = rapid.Bool().Draw(rt, "ends"), rapid.Bool().Draw(rt, "in place")
		lost := map[string]bool{}
		if rapid.Bool().Draw(rt, "loses acks") {
			p.Loses = func(topic, id string) bool { // the first ack of each second message in each topic
				defer func() { lost[topic+id] = true }()
				return !lost[topic+id] && id[len(id)-1]%2 == 0
			}
			p.Parallel = 1
		}
		r := redelivered{
			pubsub: p, messages: rapid.IntRange(1, 12).Draw(rt, "messages"), lasts: 15 * time.Minute,
			says:   rapid.SampledFrom([]time.Duration{-1, 0, p.After, 24 * time.Hour}).Draw(rt, "says"),
			takes:  rapid.SampledFrom([]time.Duration{0, p.After / 8}).Draw(rt, "takes"),
			delays: []time.Duration{rapid.SampledFrom([]time.Duration{time.Second, s5, m1}).Draw(rt, "first"), rapid.SampledFrom([]time.Duration{s5, m1}).Draw(rt, "second")},
		}
		var failed bool
		synctest.Test(t, func(t *testing.T) {
			c, n, distinct := r.run(t, &lines{})
			failed = n != r.messages || distinct != r.messages || p.Left() > 0
			for _, by := range c.by {
				for stage := range len(r.delays) + 1 {
					failed = failed || by[stage] != 1 && !(p.Ends && by[stage] > 1) // it was cut off, and counts not
				}
			}
			if failed {
				t.Logf("%d letters of %d, left %d, calls %v", n, distinct, p.Left(), c.by)
			}
		})
		testkit.Require(rt, !failed, "multiplied or lost")
	})
}

// Feature R5b: two messages of one id that a producer published are two, whether they differ or not. So are messages
// without an id.
func TestProducersDuplicates(t *testing.T) {
	for name, payloads := range map[string][2]string{"equal": {"p", "p"}, "different": {"p", "q"}} {
		for _, id := range []string{"1", ""} {
			t.Run(name+" "+id, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := redelivering.New(2 * time.Second)
					p.Parallel = 40
					s := newStaging(t, stages.Config{Stages: stages.Delays(s5, m1), Publisher: p,
						Subscriber: func(string, string) (message.Subscriber, error) { return p.Subscriber(-1), nil }}, nil)
					c := &calls{by: map[string]map[int]int{}}
					s.handle("billing", "orders", func(msg *message.Message) error { c.add(msg); return errBoom })
					s.run()
					for _, payload := range payloads {
						testkit.NoError(t, s.broker.Publish("orders", message.NewMessage(id, []byte(payload))))
					}
					time.Sleep(10 * time.Minute)
					s.stop()
					testkit.Check(t, fmt.Sprint(c.by[id]) == "map[0:2 1:2 2:2]" && s.letters.n == 2 && p.Copies() != 0,
						"handled %v, %d letters, %d copies", c.by, s.letters.n, p.Copies())
				})
			})
		}
	}
}
