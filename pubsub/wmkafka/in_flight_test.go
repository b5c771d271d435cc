package wmkafka

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// several receives the next n messages and settles none.
func (c *cluster) several(messages <-chan *message.Message, n int) (got []*message.Message) {
	c.Helper()
	for range n {
		got = append(got, c.next(messages))
	}
	return got
}

// Promises P1, P3: when a second instance joins, all messages in flight learn of it at once and have one grace together;
// what was acked behind one that was not comes again.
func TestInFlightRebalance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(6)...)
	first := c.subscribe(c.subscriber(SubscriberConfig{InFlight: 6, settleGrace: patience}))
	all := c.several(first, 6)
	all[3].Ack()
	second := c.subscribe(c.subscriber(SubscriberConfig{InFlight: 6}))
	for i, msg := range all {
		select {
		case <-msg.Context().Done():
		case <-time.After(patience):
			t.Fatalf("the context of message %d outlived its session", i)
		}
	}
	all[0].Ack()                       // in the grace
	all[4].Ack()                       // behind one that is not acked
	for _, i := range []int{1, 2, 5} { // so that the grace ends
		all[i].Nack()
	}
	c.eventually("both are members", func() bool { return c.members() == 2 })
	came := map[string]int{}
	for range 5 {
		select {
		case msg := <-first:
			came[msg.UUID]++
			msg.Ack()
		case msg := <-second:
			came[msg.UUID]++
			msg.Ack()
		case <-time.After(patience):
			t.Fatalf("only %v came again", came)
		}
	}
	if came["id-0"] != 0 || len(came) != 5 {
		t.Errorf("%v came again", came)
	}
	c.eventually("all are committed", func() bool { return c.committed() == 6 })
}

// Promise P1: whatever is acked and nacked, in whatever order, and however often the subscriber is closed in between: each
// message is acked in the end, and one that was committed does not come again.
func TestInFlightLosesNothing(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	c := newCluster(t)
	const n = 150
	c.produce(numbered(n)...)
	var lock sync.Mutex
	acked := map[string]bool{}
	rounds := 0
	for ; len(acked) < n || c.committed() < n; rounds++ {
		if rounds > 60 {
			t.Fatalf("%d of %d messages are acked, %d committed", len(acked), n, c.committed())
		}
		sub := c.subscriber(SubscriberConfig{InFlight: 1 + random.IntN(20), nackBackoff: time.Millisecond, settleGrace: 100 * time.Millisecond})
		messages := c.subscribe(sub)
		var settling sync.WaitGroup
		var left <-chan time.Time // from the first message on: one that is not committed comes again
		for open := true; open; {
			select {
			case <-left:
				open = false
			case <-time.After(patience):
				t.Fatalf("nothing comes, with %d of %d messages committed", c.committed(), n)
			case msg := <-messages:
				if left == nil {
					left = time.After(time.Duration(50+random.IntN(300)) * time.Millisecond)
				}
				nack, wait := random.IntN(5) == 0, time.Duration(random.IntN(100))*time.Millisecond
				settling.Go(func() {
					time.Sleep(wait)
					if nack {
						msg.Nack()
						return
					}
					lock.Lock()
					defer lock.Unlock()
					if msg.Ack() {
						acked[msg.UUID] = true
					}
				})
			}
		}
		go func() {
			for range messages { // what comes while it closes is not settled
			}
		}()
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		settling.Wait()
		lock.Lock()
		for i := range int(c.committed()) {
			if id := fmt.Sprint("id-", i); !acked[id] {
				t.Fatalf("%s is committed and not acked", id)
			}
		}
		lock.Unlock()
	}
	t.Logf("closed %d times", rounds)
}
