package stages_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/redelivering"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// stages counts the invocations for one message by stage.
func (n *note) stages(id string) map[int]int {
	by := map[int]int{}
	for _, h := range n.of(id) {
		stage, _ := strconv.Atoi(h.metadata[poison.KeyRetryStage])
		by[stage]++
	}
	return by
}

// Feature R5b: whatever the broker's redelivery time, its client and what its subscriber says, also with two instances,
// a message is handled once in each stage, and becomes one letter.
func TestRedeliveryProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		durations := func(what string, of ...time.Duration) time.Duration { return rapid.SampledFrom(of).Draw(rt, what) }
		p := redelivering.New(durations("after", time.Second, 2*time.Second, 7*time.Second, 30*time.Second))
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
		messages := rapid.IntRange(1, 12).Draw(rt, "messages")
		says := durations("says", -1, 0, p.After, 24*time.Hour) // -1: the time is not known
		instances := 1
		if says == p.After && p.Loses == nil { // else a copy can come to the other one
			instances = rapid.IntRange(1, 2).Draw(rt, "instances")
		}
		takes := durations("takes", 0, p.After/8) // a call out of a stage
		delays := stages.Delays(durations("first", time.Second, s5, m1), durations("second", s5, m1))
		var failed bool
		synctest.Test(t, func(t *testing.T) {
			n, kept := newNote(), &letters{kept: map[string]poison.Letter{}}
			live, ending := newBroker(), make(chan struct{})
			var stops []func()
			for range instances {
				s := newStaging(t, stages.Config{Stages: delays, Publisher: p,
					Subscriber: func(string, string) (message.Subscriber, error) { return p.Subscriber(says), nil },
				}, nil, newQueue(t, kept))
				s.broker, s.letters = live, kept
				s.again()
				s.handle("billing", "orders", func(msg *message.Message) error {
					if n.add(msg); msg.Metadata[poison.KeyRetryStage] != "" {
						select {
						case <-time.After(takes):
						case <-ending:
						}
					}
					return errBoom
				})
				s.run()
				stops = append(stops, s.stop)
			}
			for i := range messages {
				testkit.NoError(t, live.Publish("orders", newMessage(fmt.Sprint(i))))
			}
			time.Sleep(15 * time.Minute)
			close(ending)
			for _, stop := range stops {
				stop()
			}
			failed = kept.n != messages || len(kept.all()) != messages || p.Left() > 0
			for id := range n.by {
				by := n.stages(id)
				for stage := range len(delays) + 1 {
					failed = failed || by[stage] != 1 && !(p.Ends && by[stage] > 1) // it was cut off, and counts not
				}
			}
			if failed {
				t.Logf("%d letters of %d, left %d, calls for the first %v", kept.n, len(kept.all()), p.Left(), n.stages("0"))
			}
		})
		testkit.Require(rt, !failed, "multiplied or lost")
	})
}

const s5, m1 = 5 * time.Second, time.Minute

// Feature R5b: two messages of one id that a producer published are two, whether they differ or not. So are messages
// without an id. The first copy of a subscriber whose time is not known is in the log, with the remedy.
func TestProducersDuplicates(t *testing.T) {
	for name, payloads := range map[string][2]string{"equal": {"p", "p"}, "different": {"p", "q"}} {
		for _, id := range []string{"1", ""} {
			t.Run(name+" "+id, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, log := redelivering.New(2*time.Second), &lines{}
					p.Parallel = 40
					s := newStaging(t, stages.Config{Stages: stages.Delays(s5, m1), Publisher: p,
						Subscriber: func(string, string) (message.Subscriber, error) { return p.Subscriber(-1), nil }}, log)
					n := newNote()
					s.handle("billing", "orders", func(msg *message.Message) error { n.add(msg); return errBoom })
					s.run()
					for _, payload := range payloads {
						testkit.NoError(t, s.broker.Publish("orders", message.NewMessage(id, []byte(payload))))
					}
					time.Sleep(10 * time.Minute)
					s.stop()
					testkit.Check(t, fmt.Sprint(n.stages(id)) == "map[0:2 1:2 2:2]" && s.letters.n == 2 && p.Copies() != 0,
						"handled %v, %d letters, %d copies", n.stages(id), s.letters.n, p.Copies())
					notified := log.count("delivered a message again that is held")
					testkit.Check(t, notified == log.count("RedeliveryTime") && notified == 2, "of two stages: %q", log.all())
				})
			})
		}
	}
}
