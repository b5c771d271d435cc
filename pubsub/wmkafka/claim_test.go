package wmkafka

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/settings"
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
	g.ctx, g.end = context.WithCancel(context.Background())
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
	if g.left {
		g.t.Error("marked after the session")
	}
	g.marked = append(g.marked, offset-1)
}

// Commit takes its time.
func (g *group) Commit() {
	time.Sleep(50 * time.Millisecond)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left {
		g.t.Error("committed after the session")
	}
	g.commits++
}

// consume runs a claim in the background. What it panics with comes, or nil.
func (g *group) consume(s *subscription) (ended <-chan any) {
	done := make(chan any, 1)
	go func() {
		defer func() {
			panicked := recover()
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
	sub, err := NewSubscriber([]string{"127.0.0.1:1"}, "g", config)
	if err != nil {
		t.Fatal(err)
	}
	return newSubscription(sub, "orders", func() {})
}

// Promise P1: whatever is acked, nacked and never settled, and whenever the session ends: marked is what is acked, without a
// gap, and no more are in flight than were asked for.
func TestInFlightAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	for round := range 300 {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(round)))
			inFlight, lasts := 1+random.IntN(12), time.Duration(random.IntN(20_000))*time.Millisecond
			s := subscriptionOf(t, SubscriberConfig{InFlight: inFlight, nackBackoff: time.Millisecond}, round%2 == 0)
			g := newGroup(t, 60)
			ended := g.consume(s)
			var mu sync.Mutex
			acked, held, over := map[int64]bool{}, 0, make(chan struct{})
			var settling sync.WaitGroup
			settle := func(msg *message.Message, pause time.Duration, how int) {
				time.Sleep(pause)
				mu.Lock()
				defer mu.Unlock()
				held--
				offset, _ := strconv.ParseInt(string(msg.Payload), 10, 64)
				switch {
				case how == 0 && pause > 900*time.Millisecond: // never settled
				case how < 3:
					msg.Nack()
				case msg.Ack():
					acked[offset] = true
				}
			}
			settling.Go(func() {
				for {
					select {
					case <-over:
						return
					case msg := <-s.output:
						mu.Lock()
						if held++; held > inFlight {
							t.Errorf("%d are in flight of %d", held, inFlight)
						}
						pause, how := time.Duration(random.IntN(1000))*time.Millisecond, random.IntN(10)
						mu.Unlock()
						settling.Go(func() { settle(msg, pause, how) })
					}
				}
			})
			time.Sleep(lasts)
			g.leave()
			if p := <-ended; p != nil {
				t.Error(p)
			}
			close(over)
			settling.Wait()
			for i, offset := range g.marked {
				if offset != int64(i) || !acked[offset] {
					t.Fatalf("round %d: marked %v, acked %v", round, g.marked, acked)
				}
			}
		})
	}
}

// Promise P3: without auto-commit, what was acked behind one message is committed with it, in no more requests than a session
// has time for when it ends.
func TestInFlightCommitsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		s := subscriptionOf(t, SubscriberConfig{InFlight: n}, false)
		g := newGroup(t, n)
		ended := g.consume(s)
		all := make([]*message.Message, n)
		for i := range all {
			all[i] = <-s.output
		}
		all[0].Ack()
		time.Sleep(time.Second)
		synctest.Wait()
		if g.commits != 1 {
			t.Errorf("%d commits while the next is waited for", g.commits)
		}
		for _, msg := range all[2:] {
			msg.Ack()
		}
		synctest.Wait()
		began := time.Now()
		g.leave()
		all[1].Ack()
		<-ended
		if took := time.Since(began); took > s.config.settleGrace || len(g.marked) != n || g.commits < 2 {
			t.Errorf("the session took %s to end, %d are marked in %d commits", took, len(g.marked), g.commits)
		}
	})
}

// hostileLogger is a logger that panics.
type hostileLogger struct{ watermill.NopLogger }

func (hostileLogger) Debug(string, watermill.LogFields)                  { panic("logger") }
func (l hostileLogger) With(watermill.LogFields) watermill.LoggerAdapter { return l }

// Feature O5: a logger that panics does not end the claim, and does not leave it waiting for a message that was not sent.
func TestInFlightUnderPanic(t *testing.T) {
	for _, inFlight := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, 1)
			ended := g.consume(subscriptionOf(t, SubscriberConfig{InFlight: inFlight, Shared: settings.Shared{Logger: hostileLogger{}}}, true))
			synctest.Wait() // it is not taken
			g.leave()
			if p := <-ended; p != nil || len(g.marked) != 0 {
				t.Errorf("in flight %d: %v, marked %v", inFlight, p, g.marked)
			}
		})
	}
}
