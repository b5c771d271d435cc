package wmsql_test

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// What becomes of the next COMMIT: it arrives, and its answer does not, or neither does.
const (
	notCutting int32 = iota
	cutRequest
	cutAnswer
	holdAnswer // for ever
	cutNow     // the COMMIT is through: what the server says next is its answer
	holdNow
)

// watchCommits returns what decides what becomes of a COMMIT and of its answer.
func watchCommits(p *faultproxy.Proxy) *atomic.Int32 {
	cutting := &atomic.Int32{}
	p.Watch(func(said []byte) faultproxy.Verdict {
		said = bytes.ToLower(said)
		if !bytes.Contains(said, []byte("commit")) || bytes.Contains(said, []byte("read committed")) {
			return faultproxy.Pass
		}
		if cutting.CompareAndSwap(cutRequest, notCutting) {
			return faultproxy.Close
		}
		cutting.CompareAndSwap(cutAnswer, cutNow)
		cutting.CompareAndSwap(holdAnswer, holdNow)
		return faultproxy.Pass
	}, func([]byte) faultproxy.Verdict {
		if cutting.CompareAndSwap(cutNow, notCutting) {
			return faultproxy.Close
		}
		if cutting.CompareAndSwap(holdNow, notCutting) {
			return faultproxy.Hold
		}
		return faultproxy.Pass
	})
	return cutting
}

// The connection goes between a COMMIT and its answer, or right before it: no message takes effect twice.
func TestCommitAnswerLost(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		random, rounds := testkit.Random(t), testkit.Campaign(t, 10)
		through, proxy := b.behind()
		cutting := watchCommits(proxy)
		ids := batchOf("m", 10*rounds)
		b.publish(ids...)
		var seen deliveries
		begin := make(chan struct{}) // once the first commit is sure to be cut
		soon := func(c *wmsql.SubscriberConfig) { *wmsql.MaxNackBackoff(c) = 10 * time.Millisecond }
		through.run(through.subscriber(soon), func(msg *message.Message) ([]*message.Message, error) {
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
		again := len(strings.Fields(seen.String())) - len(seen.get())
		testkit.Check(t, lost[cutRequest]+lost[cutAnswer] != 0 && (again != 0 || lost[cutRequest] == 0),
			"no commit was cut, or no message of a lost commit came again: the test shows nothing")
	})
}

// Close does not wait for a server that does not answer, and nothing of that message is left.
func TestHalfOpen(t *testing.T) {
	for _, where := range []string{"in a statement", "at the commit"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, b *bench) {
				through, proxy := b.behind()
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
					close(stuck)
				} else {
					cutting := watchCommits(proxy)
					cutting.Store(holdAnswer)
					close(stuck)
					b.until("it commits", func() bool { return cutting.Load() == notCutting })
				}
				defer proxy.Heal()
				testkit.Within(t, "Close, of a server that does not answer", func() { testkit.Is(t, sub.Close(), nil) })
				proxy.Heal()
				b.handsOver(stop, "a")
			})
		})
	}
}
