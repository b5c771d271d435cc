package redelivering

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A message without an ack comes again after its time and after a nack. Of its copies one ack is enough.
func TestRedelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(2 * time.Second)
		p.Parallel = 10
		sub := p.Subscriber(time.Second)
		messages, err := sub.Subscribe(t.Context(), "t")
		if err != nil || sub.RedeliveryTime() != time.Second {
			t.Fatal(err)
		}
		defer sub.Close()
		if err := p.Publish("t", message.NewMessage("1", nil)); err != nil {
			t.Fatal(err)
		}
		first, began := <-messages, time.Now()
		second := <-messages
		if after := time.Since(began); after < 2*time.Second || after > 3*time.Second || second.UUID != "1" {
			t.Errorf("redelivered after %s", after)
		}
		second.Nack()
		third := <-messages
		if p.Copies() != 2 || p.Left() != 1 {
			t.Errorf("%d copies, %d left", p.Copies(), p.Left())
		}
		first.Ack()
		time.Sleep(10 * time.Second)
		if p.Copies() != 2 || p.Left() != 0 {
			t.Errorf("%d copies, %d left after an ack", p.Copies(), p.Left())
		}
		third.Ack()
	})
}
