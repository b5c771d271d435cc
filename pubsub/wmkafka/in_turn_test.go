package wmkafka

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// failingGroup has records with gaps between their offsets, and one of so many keys each, or none.
func failingGroup(t *testing.T, random *rand.Rand, records, keys int) (*group, []int64) {
	g := newGroup(t, 0)
	g.records = make(chan *sarama.ConsumerMessage, records)
	var offsets []int64
	offset := int64(-1)
	for range records {
		offset += 1 + int64(random.IntN(3)/2)
		record := &sarama.ConsumerMessage{Offset: offset, Value: []byte(strconv.FormatInt(offset, 10))}
		if keys > 0 {
			record.Key = []byte(strconv.Itoa(random.IntN(keys)))
		}
		offsets = append(offsets, offset)
		g.records <- record
	}
	return g, offsets
}

func offsetOf(msg *message.Message) int64 {
	offset, _ := strconv.ParseInt(string(msg.Payload), 10, 64)
	return offset
}

func keyOf(msg *message.Message) string {
	return string(msg.Context().Value(recordContextKey{}).(*recordContext).record.Key)
}

// Promises P1, P4: whatever messages fail, and whatever their publisher does (confirm in any order, refuse, never
// answer), and whenever the session ends: no offset is marked over one that is not done; one handler runs at a time;
// messages come first in order, and again before new ones; letters of one key are placed in order; no more are open
// than were asked for; and if all is confirmed in the end, all is marked.
func TestPlacingAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	for round := range 300 {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(round)))
			most, keys, ends := 1+random.IntN(12), random.IntN(4), round%3 == 0
			s := subscriptionOf(t, SubscriberConfig{MaxPlacing: most, nackBackoff: time.Millisecond, maxNackBackoff: 20 * time.Millisecond}, round%2 == 0)
			g, offsets := failingGroup(t, random, 80, keys)
			ended := g.consume(s)
			var (
				mu       sync.Mutex
				done     = map[int64]bool{}
				attempts = map[int64]int{}
				open     = map[int64]bool{}
				first    []int64
				placed   = map[string][]int64{}
				handling int
				working  sync.WaitGroup
			)
			roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
			pause := func(most int) { time.Sleep(time.Duration(roll(most)) * time.Millisecond) }
			handle := func(msg *message.Message) {
				offset := offsetOf(msg)
				mu.Lock()
				handling++
				testkit.Check(t, handling == 1, "round %d: %d handlers run", round, handling)
				if attempts[offset]++; attempts[offset] == 1 {
					first = append(first, offset)
					testkit.Check(t, len(open) <= most, "round %d: %d are open of %d", round, len(open), most)
				}
				mu.Unlock()
				pause(10)
				fails := roll(3) > 0
				mu.Lock()
				handling--
				mu.Unlock()
				if !fails {
					mu.Lock()
					defer mu.Unlock()
					if msg.Ack() {
						done[offset] = true
						delete(open, offset)
					}
					return
				}
				if roll(10) == 0 {
					msg.Nack()
					return
				}
				mu.Lock()
				open[offset] = true
				mu.Unlock()
				placing.Begin(msg.Context(), msg)
				placing.Begin(msg.Context(), msg) // a stage refused it, and its letter is placed
				if msg.Context().Err() != nil {
					msg.Nack()
					return
				}
				pause(200)
				switch how := roll(20); {
				case how == 0 && ends: // it never answers
				case how < 5:
					msg.Nack()
				default:
					mu.Lock()
					defer mu.Unlock()
					if key := keyOf(msg); msg.Ack() {
						done[offset] = true
						delete(open, offset)
						placed[key] = append(placed[key], offset)
					}
				}
			}
			over := make(chan struct{})
			working.Go(func() {
				for {
					select {
					case <-over:
						return
					case msg := <-s.output:
						working.Go(func() { handle(msg) })
					}
				}
			})
			if ends {
				time.Sleep(time.Duration(roll(4000)) * time.Millisecond)
			} else {
				time.Sleep(time.Hour)
			}
			g.leave()
			testkit.Equal(t, "panicked with", <-ended, nil)
			close(over)
			working.Wait()
			testkit.Check(t, slices.Equal(first, offsets[:len(first)]), "round %d: they came as %v", round, first)
			if keys > 0 {
				for key, order := range placed {
					testkit.Check(t, slices.IsSorted(order),
						"round %d: the letters of %q were placed as %v", round, key, order)
				}
			}
			last := offsets[len(offsets)-1]
			testkit.Check(t, ends || len(g.marked) > 0 && g.marked[len(g.marked)-1] == last,
				"round %d: all are done up to %d, and marked is %v", round, last, g.marked)
			for _, offset := range offsets {
				testkit.Require(t, done[offset] || len(g.marked) == 0 || offset > slices.Max(g.marked),
					"round %d: marked %v, and %d is not done", round, g.marked, offset)
			}
		})
	}
}

// deliveries are what a claim delivers, one by one.
type deliveries struct {
	*testing.T
	*group
	of *subscription
}

func (d deliveries) next() *message.Message {
	d.Helper()
	synctest.Wait()
	select {
	case msg := <-d.of.output:
		return msg
	case <-time.After(time.Hour):
		d.Fatal("no message came")
		return nil
	}
}

func (d deliveries) none() {
	d.Helper()
	select {
	case msg := <-d.of.output:
		d.Fatalf("%s came", msg.Payload)
	case <-time.After(time.Hour):
	}
}

// marks fails unless these offsets are marked, once all goroutines wait.
func (d deliveries) marks(want ...int64) {
	d.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	testkit.Check(d, slices.Equal(d.group.marked, want), "marked %v, want %v", d.group.marked, want)
}

// fails begins to place the next message.
func (d deliveries) fails() *message.Message {
	d.Helper()
	msg := d.next()
	go placing.Begin(msg.Context(), msg)
	synctest.Wait()
	return msg
}

// Feature R5: a publisher may take its time with a failed message if nothing waits for it: no next message, and none of
// its key.
func TestPlacingAside(t *testing.T) {
	want := func(d deliveries, msg *message.Message, aside bool) {
		d.Helper()
		testkit.Check(d, placing.IsAside(msg.Context()) == aside, "message %s: aside is %t", msg.Payload, !aside)
	}
	synctest.Test(t, func(t *testing.T) {
		g, _ := failingGroup(t, rand.New(rand.NewPCG(1, 1)), 4, 1) // all with one key
		deliver(t, g, SubscriberConfig{}, func(d deliveries) {
			before := d.next()
			want(d, before, false)
			placing.Begin(before.Context(), before)
			want(d, before, true)
			behind := d.fails()
			before.Ack()
			synctest.Wait()
			want(d, behind, false)
		})
	})
	for name, config := range map[string]SubscriberConfig{"off": {MaxPlacing: -1}, "in lanes": {InFlight: 2}} {
		consuming(t, 2, config, func(d deliveries) {
			d.Log(name)
			want(d, d.fails(), false)
		})
	}
	consuming(t, 2, SubscriberConfig{}, func(d deliveries) { want(d, d.isFirst(), false) })
}

// isFirst begins to place the next message, which is to be placed before the one behind it.
func (d deliveries) isFirst() *message.Message {
	d.Helper()
	msg := d.next()
	placing.First(msg.Context())
	go placing.Begin(msg.Context(), msg)
	return msg
}

func consuming(t *testing.T, records int, config SubscriberConfig, test func(deliveries)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { deliver(t, newGroup(t, records), config, test) })
}

func deliver(t *testing.T, g *group, config SubscriberConfig, test func(deliveries)) {
	s := subscriptionOf(t, config, true)
	ended := g.consume(s)
	test(deliveries{t, g, s})
	g.leave()
	testkit.Equal(t, "panicked with", <-ended, nil)
}

// Promise P1: at the bound, in number, in bytes, and in messages that would be handled again after a crash, the
// subscriber waits until a placement is confirmed. Without background placements it waits for each.
func TestPlacingIsBounded(t *testing.T) {
	for _, row := range map[string]struct {
		config SubscriberConfig
		room   int
	}{
		"number": {SubscriberConfig{MaxPlacing: 3}, 3},
		"bytes":  {SubscriberConfig{maxPlacingBytes: 4}, 4}, // a byte each
		"off":    {SubscriberConfig{MaxPlacing: -1}, 1},
	} {
		consuming(t, 8, row.config, func(d deliveries) {
			var open []*message.Message
			for range row.room {
				open = append(open, d.fails())
			}
			d.none()
			open[row.room-1].Ack()
			d.fails().Ack()
			if row.room > 1 {
				d.marks() // none over one that is not placed
			}
			open[0].Ack()
			d.next()
		})
	}
	consuming(t, maxInFlight+2, SubscriberConfig{}, func(d deliveries) {
		first := d.fails()
		for range maxInFlight {
			(<-d.of.output).Ack()
		}
		d.none()
		first.Ack()
		d.next()
	})
}

// Promise P1: a message that is requeued comes again before new ones, after the backoff and before one behind it that
// is being placed with its key; a signal of an earlier delivery, or of another message, has no effect.
func TestPlacingRefused(t *testing.T) {
	consuming(t, 4, SubscriberConfig{nackBackoff: time.Second}, func(d deliveries) {
		first, second := d.fails(), d.fails()
		third := d.next()
		first.Nack()
		d.none() // the third one is handled
		began := time.Now()
		third.Ack()
		again := d.next()
		testkit.Require(t, string(again.Payload) == "0" && time.Since(began) == 0, "%s came", again.Payload)
		placing.Begin(again.Context(), first)
		placing.Begin(first.Context(), first)
		placing.Begin(again.Context(), again.Copy())
		d.none()
		again.Nack()
		began = time.Now()
		again = d.next()
		testkit.Require(t, string(again.Payload) == "0" && time.Since(began) == 2*time.Second, "%s came", again.Payload)
		again.Ack()
		d.marks(0)
		second.Ack()
		d.marks(0, 2)
	})
}

// Promise P3: what is confirmed in the grace after the session is marked, and what is not is neither marked nor
// delivered again.
func TestPlacingAtTheEnd(t *testing.T) {
	consuming(t, 5, SubscriberConfig{settleGrace: time.Second}, func(d deliveries) {
		first, _, third := d.fails(), d.fails(), d.fails()
		d.end()
		time.Sleep(500 * time.Millisecond)
		first.Ack()
		third.Ack()
		time.Sleep(time.Second)
		d.marks(0)
	})
}

// Promise P1: a message that its handler acked itself is done, although its letter is placed after that.
func TestPlacingAfterAck(t *testing.T) {
	consuming(t, 2, SubscriberConfig{}, func(d deliveries) {
		first := d.next()
		testkit.Equal(d, "it may be held for", hold.MaxHold(first.Context(), 0), maxHold)
		first.Ack()
		second := d.next()
		placing.Begin(first.Context(), first)
		second.Ack()
		d.marks(0, 1)
	})
}

// Feature D10, promise P4: a message that is to be placed first is placed, and committed, before the next one is
// delivered. While its publisher is unavailable the next one waits for a bounded time.
func TestPlacingFirst(t *testing.T) {
	for name, config := range map[string]SubscriberConfig{"in the background": {}, "not in the background": {MaxPlacing: -1}} {
		consuming(t, 4, config, func(d deliveries) {
			d.next().Ack()
			first := d.isFirst()
			time.Sleep(placing.FirstFor - time.Second)
			select {
			case msg := <-d.of.output:
				d.Fatalf("%s: %s came before the message was placed", name, msg.Payload)
			default:
			}
			first.Ack()
			next := d.next()
			d.mu.Lock()
			testkit.Check(d, fmt.Sprint(d.marked) == "[0 1]" && d.commits == 1,
				"%s: %s came with %v marked after %d commits", name, next.Payload, d.marked, d.commits)
			d.mu.Unlock()
			next.Ack()
		})
	}
	consuming(t, 2, SubscriberConfig{}, func(d deliveries) {
		first := d.isFirst()
		d.next().Ack()
		d.marks() // none over one that is not placed
		first.Ack()
		d.marks(1)
	})
	consuming(t, 2, SubscriberConfig{InFlight: 2}, func(d deliveries) {
		d.isFirst().Ack()
		time.Sleep(time.Second)
		d.mu.Lock()
		defer d.mu.Unlock()
		testkit.Check(d, d.commits == 1, "with several in flight, %d commits", d.commits)
	})
}
