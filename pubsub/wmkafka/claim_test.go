package wmkafka

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// group is a session of a member, and its claim on a partition, without the broker: its random moments take no time.
type group struct {
	sarama.ConsumerGroupSession
	sarama.ConsumerGroupClaim
	ctx     context.Context
	end     context.CancelFunc
	records chan *sarama.ConsumerMessage

	mu      sync.Mutex
	marked  []int64
	commits int
	left    bool
	t       *testing.T
}

func newGroup(t *testing.T, records int) *group {
	g := &group{t: t, records: make(chan *sarama.ConsumerMessage, records)}
	g.ctx, g.end = context.WithCancel(graceful.With(context.Background(), -1)) // no broker says whose the partition is
	for i := range records {
		g.records <- &sarama.ConsumerMessage{Offset: int64(i), Value: []byte(strconv.Itoa(i))}
	}
	return g
}

func (g *group) Context() context.Context                 { return g.ctx }
func (g *group) Messages() <-chan *sarama.ConsumerMessage { return g.records }

func (g *group) MarkMessage(record *sarama.ConsumerMessage, _ string) {
	g.MarkOffset("", 0, record.Offset+1, "")
}

func (g *group) MarkOffset(_ string, _ int32, offset int64, _ string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	testkit.Check(g.t, !g.left, "marked after the session")
	g.marked = append(g.marked, offset-1)
}

// Commit takes its time.
func (g *group) Commit() {
	time.Sleep(50 * time.Millisecond)
	g.mu.Lock()
	defer g.mu.Unlock()
	testkit.Check(g.t, !g.left, "committed after the session")
	g.commits++
}

// consume runs a claim in the background. What it panics with comes, or nil.
func (g *group) consume(s *subscription) (ended <-chan any) {
	done := make(chan any, 1)
	s.tenure = s.begin(g, graceful.TimeoutOf(g.Context()))
	go func() {
		defer func() {
			panicked := recover()
			_ = s.Cleanup(g)
			g.mu.Lock()
			g.left = true
			g.mu.Unlock()
			done <- panicked
		}()
		_ = s.ConsumeClaim(g, g)
	}()
	return done
}

func (g *group) leave() {
	g.end()
	close(g.records)
}

func subscriptionOf(t *testing.T, config SubscriberConfig, autoCommit bool) *subscription {
	t.Helper()
	config.Sarama = func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Enable = autoCommit }
	return newSubscription(context.Background(), testkit.Must(NewSubscriber([]string{"127.0.0.1:1"}, "g", config)), "orders")
}

// Promise P1: whatever is acked, nacked and never settled, and whenever the session ends: marked is what is acked,
// without a gap, no more are in flight than were asked for, and the messages of a key are acked in their order, one at
// a time.
func TestInFlightAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	for round := range 300 {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(round)))
			inFlight, lasts := 1+random.IntN(12), time.Duration(random.IntN(20_000))*time.Millisecond
			s := subscriptionOf(t, SubscriberConfig{InFlight: inFlight, nackBackoff: time.Millisecond}, round%2 == 0)
			g := newGroup(t, 60)
			for range 60 { // of four keys, and without one
				record := <-g.records
				if key := random.IntN(5); key > 0 {
					record.Key = []byte{byte('a' + key)}
				}
				g.records <- record
			}
			ended := g.consume(s)
			var mu sync.Mutex
			acked, held, over := map[int64]bool{}, 0, make(chan struct{})
			last, busy := map[string]int64{}, map[string]bool{}
			var settling sync.WaitGroup
			settle := func(msg *message.Message, pause time.Duration, how int) {
				time.Sleep(pause)
				mu.Lock()
				defer mu.Unlock()
				held--
				offset, key := offsetOf(msg), keyOf(msg)
				testkit.Check(t, key == "" || last[key] <= offset,
					"round %d: %d of key %s is acked after %d", round, offset, key, last[key])
				busy[key] = false
				switch {
				case how == 0 && pause > 900*time.Millisecond: // never settled
					busy[key] = true
				case how < 3:
					msg.Nack()
				case msg.Ack():
					acked[offset], last[key] = true, offset
				}
			}
			settling.Go(func() {
				for {
					select {
					case <-over:
						return
					case msg := <-s.output:
						mu.Lock()
						held++
						testkit.Check(t, held <= inFlight, "%d are in flight of %d", held, inFlight)
						key := keyOf(msg)
						testkit.Check(t, key == "" || !busy[key], "round %d: two of key %s are in flight", round, key)
						busy[key] = true
						pause, how := time.Duration(random.IntN(1000))*time.Millisecond, random.IntN(10)
						mu.Unlock()
						settling.Go(func() { settle(msg, pause, how) })
					}
				}
			})
			time.Sleep(lasts)
			g.leave()
			testkit.Equal(t, "panicked with", <-ended, nil)
			close(over)
			settling.Wait()
			testkit.Require(t, slices.IsSorted(g.marked), "round %d: marked %v", round, g.marked)
			for offset := range append([]int64{-1}, g.marked...)[len(g.marked)] + 1 {
				testkit.Require(t, acked[offset], "round %d: marked %v, acked %v", round, g.marked, acked)
			}
		})
	}
}

// Promise P3: without auto-commit, what was acked behind one message is committed with it, in no more requests than a
// session has time for when it ends.
func TestInFlightCommitsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		s := subscriptionOf(t, SubscriberConfig{InFlight: n}, false)
		g := newGroup(t, n)
		ended := g.consume(s)
		all := make([]*message.Message, n)
		for range all {
			msg := <-s.output // in any order
			all[offsetOf(msg)] = msg
		}
		all[0].Ack()
		time.Sleep(time.Second)
		synctest.Wait()
		testkit.Check(t, g.commits == 1, "%d commits while the next is waited for", g.commits)
		for _, msg := range all[2:] {
			msg.Ack()
		}
		synctest.Wait()
		began := time.Now()
		g.leave()
		all[1].Ack()
		<-ended
		testkit.Check(t, time.Since(began) <= s.config.settleGrace && g.marked[len(g.marked)-1] == n-1 && g.commits >= 2,
			"the session took %s to end, marked %v in %d commits", time.Since(began), g.marked, g.commits)
	})
}

// Promise P1: whatever is placed and confirmed, in whatever order, and whatever gaps the offsets have: the position is
// never above a message that is not done, and never goes back; it has no gap for good; what is open is bounded; and
// messages of one key take turns.
func TestMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const maxSize = 10
		m := marks{most: rapid.IntRange(1, 8).Draw(t, "most"), mostBytes: rapid.IntRange(1, 40).Draw(t, "bytes"), ahead: rapid.IntRange(1, 20).Draw(t, "ahead")}
		var open []*placement
		keys := map[*placement]string{}
		next, last, position := int64(rapid.IntRange(0, 100).Draw(t, "first")), int64(-1), int64(0)
		beyond := 0 // messages taken since the first open one
		check := func() {
			got := m.position()
			switch {
			case got < position:
				t.Fatalf("the position went back from %d to %d", position, got)
			case len(open) > 0 && got > open[0].offset:
				t.Fatalf("the position is %d, and %d is being placed", got, open[0].offset)
			case len(open) > 0 && got < open[0].offset && got <= last:
				t.Fatalf("the position is %d, and %d is the first that is being placed", got, open[0].offset)
			case len(open) == 0 && last >= 0 && got != last+1:
				t.Fatalf("the position is %d, and all is done up to %d", got, last)
			}
			size := 0
			for i, p := range open {
				size += p.size
				ahead := slices.ContainsFunc(open[:i], func(other *placement) bool { return keys[other] != "" && keys[other] == keys[p] })
				testkit.Require(t, (p.turn() != nil) == ahead, "%d waits for its turn, or not", p.offset)
			}
			full := len(open) >= m.most || size >= m.mostBytes || len(open) > 0 && beyond >= m.ahead
			testkit.Require(t, m.full() == full,
				"full: %t, with %d messages of %d bytes, %d beyond the first", !full, len(open), size, beyond)
			testkit.Require(t, len(m.open) <= m.ahead+1 && m.number == len(open) && m.bytes == size && len(m.latest) <= len(open),
				"it keeps %d messages, counts %d of %d bytes, and knows %d keys; %d are open", len(m.open), m.number, m.bytes, len(m.latest), len(open))
			position = got
		}
		confirm := func(i int) {
			p := open[i]
			turn := p.after
			m.confirm(p)
			if turn != nil {
				<-turn
			}
			open = slices.Delete(open, i, i+1)
			if len(open) == 0 || i == 0 {
				beyond = 0
				if len(open) > 0 {
					beyond = m.taken - open[0].taken
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"take": func(t *rapid.T) {
				if m.full() {
					t.Skip("the subscriber waits")
				}
				next += int64(rapid.SampledFrom([]int{1, 1, 1, 2, 1000}).Draw(t, "gap"))
				last = next
				m.take()
				if len(open) > 0 {
					beyond++
				}
				if rapid.Bool().Draw(t, "fails") {
					var key []byte
					if n := rapid.IntRange(0, 3).Draw(t, "key"); n > 0 {
						key = []byte(strconv.Itoa(n))
					}
					p := m.place(next, key, rapid.IntRange(0, maxSize).Draw(t, "size"))
					open, keys[p] = append(open, p), string(key)
					return
				}
				m.done(next)
			},
			"confirm": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("none is open")
				}
				confirm(rapid.IntRange(0, len(open)-1).Draw(t, "which"))
			},
		})
		for len(open) > 0 {
			confirm(len(open) - 1)
		}
		check()
	})
}
