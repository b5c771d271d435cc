package wmkafka

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// several receives the next n messages and settles none.
func (c *cluster) several(messages <-chan *message.Message, n int) (got []*message.Message) {
	c.Helper()
	for range n {
		got = append(got, c.next(messages))
	}
	return got
}

// Promises P1, P3: when a second instance joins, all messages in flight learn of it at once and have one grace
// together; what was acked behind one that was not comes again.
func TestInFlightRebalance(t *testing.T) {
	t.Parallel()
	const tries = 3 // a broker that has no processor time for seconds refuses what is committed in the grace
	for try := 1; ; try++ {
		came := rebalancedInFlight(t)
		if came["id-0"] == 0 && len(came) == 5 {
			return
		}
		t.Logf("try %d: %v came again", try, came)
		testkit.Require(t, try != tries, "what was acked in the grace came again")
	}
}

// rebalancedInFlight acks one of six messages in the grace of a rebalance, and returns those that came again.
func rebalancedInFlight(t *testing.T) map[string]int {
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
	for until := time.Now().Add(patience); c.committed() < 6; {
		testkit.Require(t, !time.Now().After(until), "not all are committed; %v came again", came)
		select {
		case msg := <-first:
			came[msg.UUID]++
			msg.Ack()
		case msg := <-second:
			came[msg.UUID]++
			msg.Ack()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return came
}
