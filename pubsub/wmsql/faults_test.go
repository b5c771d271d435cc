package wmsql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// The connection goes between a COMMIT and its answer, or right before it, at commits that chance picks. The table of
// positions knows which, and no message takes effect twice.
func TestCommitAnswerLost(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench, s server) {
		random, rounds := testkit.Random(t), testkit.Campaign(t, 10)
		through, proxy := b.over(s)
		watchCommits(proxy)
		var ids []string
		for i := range 10 * rounds {
			ids = append(ids, fmt.Sprintf("m-%d", i))
		}
		b.publish(ids...)
		var seen deliveries
		begin := make(chan struct{}) // once the first commit is sure to be cut
		through.run(through.subscriber(func(c *wmsql.SubscriberConfig) { *wmsql.MaxNackBackoff(c) = 10 * time.Millisecond }), func(msg *message.Message) ([]*message.Message, error) {
			<-begin
			seen.add(msg.UUID)
			time.Sleep(time.Millisecond)
			return through.whole(msg)
		})
		lost := map[int32]int{}
		for round := range rounds {
			how := cutRequest + int32(random.IntN(2))
			if round > 0 {
				time.Sleep(time.Duration(random.IntN(15)) * time.Millisecond)
			}
			if b.backlog(b.topic, "") == 0 {
				break
			}
			if cutting.Store(how); round == 0 {
				close(begin)
			}
			b.until("a commit is cut", func() bool { return cutting.Load() == notCutting || b.backlog(b.topic, "") == 0 })
			if cutting.CompareAndSwap(how, notCutting) {
				break // the last message was through before
			}
			lost[how]++
		}
		cutting.Store(notCutting)
		b.account(ids)
		again := 0
		for _, n := range seen.get() {
			again += n - 1
		}
		t.Logf("%d messages, %d commits lost, %d answers lost, %d messages came again", len(ids), lost[cutRequest], lost[cutAnswer], again)
		if lost[cutRequest]+lost[cutAnswer] == 0 || again == 0 && lost[cutRequest] > 0 {
			t.Error("no commit was cut, or no message of a lost commit came again: the test shows nothing")
		}
	})
}

// Close does not wait for a server that does not answer, and nothing of that message is left.
func TestHalfOpen(t *testing.T) {
	for _, where := range []string{"in a statement", "at the commit"} {
		t.Run(where, func(t *testing.T) {
			onServers(t, func(t *testing.T, b *bench, s server) {
				through, proxy := b.over(s)
				b.publish("a")
				busy, stuck := make(chan struct{}), make(chan struct{})
				sub := through.subscriber(func(c *wmsql.SubscriberConfig) { *wmsql.SettleGrace(c) = 300 * time.Millisecond })
				stop := through.run(sub, func(msg *message.Message) ([]*message.Message, error) {
					close(busy)
					<-stuck
					return through.whole(msg)
				})
				<-busy
				if where == "in a statement" {
					proxy.HalfOpen()
				} else {
					watchCommits(proxy)
					cutting.Store(holdAnswer)
				}
				close(stuck)
				if where != "in a statement" {
					b.until("it commits", func() bool { return cutting.Load() == notCutting })
				}
				closed := make(chan struct{})
				go func() {
					defer close(closed)
					if err := sub.Close(); err != nil {
						t.Error(err)
					}
				}()
				select {
				case <-closed:
				case <-time.After(patience):
					t.Error("Close waits for a server that does not answer")
				}
				proxy.Heal()
				<-closed
				stop()
				b.run(b.subscriber(), b.whole)
				b.account([]string{"a"})
			})
		})
	}
}
