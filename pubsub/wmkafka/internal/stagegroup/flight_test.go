package stagegroup

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/timing/due"
)

// Features R5, P1: while messages are placed elsewhere, those behind them are handled, in a bound. Confirms come in any
// order, and nothing is marked behind one that is missing. A message that is nacked comes again.
func TestPlacing(t *testing.T) {
	for name, row := range map[string]struct {
		inFlight, most int
		first          bool
		want           int // that are taken before the first is acked
	}{
		"in the bound":   {inFlight: 4, most: 10, want: 10},
		"none":           {inFlight: 4, most: -1, want: 4},
		"first":          {inFlight: 4, most: 10, first: true, want: 4},
		"one at a time":  {inFlight: 1, most: 10, want: 1},
		"more in flight": {inFlight: 12, most: 10, want: 12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := sessionAt(t, 100)
				s.config.InFlight, s.config.MaxPlacing = row.inFlight, row.most
				var mu sync.Mutex
				open, times := map[string]*message.Message{}, map[string]int{}
				c.topic.Stage = &due.Stage{
					Delay: time.Second,
					Until: func(_ *message.Message, arrived time.Time) time.Time { return arrived },
					Take: func(msg *message.Message) {
						if row.first {
							placing.First(msg.Context())
						}
						placing.Begin(msg.Context(), msg)
						aside := row.inFlight > 1 && row.most > 0 && !row.first
						testkit.Check(t, placing.IsAside(msg.Context()) == aside, "aside is %t", !aside)
						mu.Lock()
						open[msg.UUID] = msg
						times[msg.UUID]++
						mu.Unlock()
						select {
						case <-msg.Acked():
						case <-msg.Nacked():
						}
					},
				}
				s.running.Go(s.schedule)
				_, asked, _ := s.request(1)
				s.receive(1, responseFrom(100, 20), asked)
				synctest.Wait()
				testkit.Check(t, len(open) == row.want, "%d are taken, want %d", len(open), row.want)
				marked := func(when string, want int64) {
					t.Helper()
					synctest.Wait()
					s.mu.Lock()
					defer s.mu.Unlock()
					if got := c.parts[0].mark(); got != want {
						t.Errorf("%s: marked %d, want %d", when, got, want)
					}
				}
				ackAll := func(but string) {
					for acks := 1; acks > 0; synctest.Wait() {
						acks = 0
						mu.Lock()
						for id, msg := range open {
							if id != but && msg.Ack() {
								delete(open, id)
								acks++
							}
						}
						mu.Unlock()
					}
				}
				ackAll("100")
				marked("all but the first are confirmed", 100)
				open["100"].Nack()
				time.Sleep(time.Second)
				marked("the first came again", 100)
				if times["100"] != 2 {
					t.Errorf("the first was taken %d times", times["100"])
				}
				ackAll("")
				marked("all are confirmed", 120)
				testkit.Check(t, len(times) == 20, "%d were taken", len(times))
				s.cancel()
				s.running.Wait()
			})
		})
	}
}

func TestMain(m *testing.M) {
	// Sarama's metrics have one goroutine for the whole process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// Each partition has one member, which subscribes to its topic, and sarama assigns none.
func TestAssignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topics := map[string][]int32{}
		for i := range rapid.IntRange(1, 6).Draw(t, "topics") {
			for p := range rapid.IntRange(1, 5).Draw(t, "partitions") {
				topics[fmt.Sprint("topic-", i)] = append(topics[fmt.Sprint("topic-", i)], int32(p))
			}
		}
		members, subscribed := map[string]sarama.ConsumerGroupMemberMetadata{}, map[string]bool{}
		for i := range rapid.IntRange(1, 5).Draw(t, "members") {
			var own []string
			for topic := range topics {
				if i == 0 || rapid.Bool().Draw(t, "subscribes") {
					own = append(own, topic)
					subscribed[topic] = true
				}
			}
			members[fmt.Sprint("member-", i)] = sarama.ConsumerGroupMemberMetadata{Topics: own}
		}
		s := newStrategy()
		plan, err := s.Plan(members, topics)
		testkit.NoError(t, err)
		seen := map[string]int{}
		for member, metadata := range members {
			testkit.Require(t, len(plan[member]) <= 0, "sarama starts partitions: %v", plan)
			data, err := s.AssignmentData(member, nil, 1)
			testkit.NoError(t, err)
			var own map[string][]int32
			testkit.NoError(t, json.Unmarshal(data, &own))
			for topic, partitions := range own {
				testkit.Require(t, slices.Contains(metadata.Topics, topic), "%s has %s", member, topic)
				for _, p := range partitions {
					seen[fmt.Sprint(topic, "/", p)]++
				}
			}
		}
		for topic, partitions := range topics {
			for _, p := range partitions {
				if n := seen[fmt.Sprint(topic, "/", p)]; n != 1 && subscribed[topic] {
					t.Fatalf("%s/%d has %d members", topic, p, n)
				}
			}
		}
	})
}
