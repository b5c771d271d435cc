package wmamqp_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/graceful"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

const (
	closesWithin = 4 * time.Second
	quickly      = 2 * time.Second // where the peer answers, or there is nothing to ask it
)

// Feature D4, promise P3: Close returns within 4 s as a whole, after the drain of a subscription, whatever the peer does
// and whatever is in flight; what is left then ends by itself, and leaves no goroutine.
func TestCloseWhateverThePeerDoes(t *testing.T) {
	if unracedAlone(t) {
		return
	}
	for _, how := range []string{alive, silent, cutOff, gone, lost} {
		for what, use := range map[string]func(*testing.T, *peer) (closes func() error){
			"publisher":  peerPublisher,
			"publishing": peerPublishing,
			"opening":    peerOpening,
			"subscriber": peerSubscriber,
			"idle":       peerIdle,
		} {
			for name, later := range map[string]time.Duration{"at once": 0, "later": 20 * time.Second} {
				t.Run(how+"/"+what+"/"+name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := &peer{}
						closes := use(t, p)
						synctest.Wait()
						p.falls(how)
						time.Sleep(later)
						begun := time.Now()
						err := closes()
						took := time.Since(begun)
						t.Logf("%s: %v", took, err)
						least := time.Duration(0)
						if what == "subscriber" { // a handler never ends
							least = graceful.Timeout
						}
						testkit.Check(t, took <= least+closesWithin && (how != alive || took <= least+quickly &&
							err == nil), "Close took %s: %v", took, err)
						again := closes()
						testkit.Check(t, again == err, "closed again: %v", again)
						testkit.Check(t, took == time.Since(begun), "closed again in %s", time.Since(begun)-took)
						time.Sleep(2 * time.Minute) // then the test fails for each goroutine that is left
					})
				})
			}
		}
	}
}

func peerPublisher(_ *testing.T, p *peer) func() error {
	pub := testkit.Must(wmamqp.NewPublisher("amqp://peer/", wmamqp.PublisherConfig{AMQP: p.config()}))
	testkit.Must(0, pub.Publish("q", message.NewMessage("1", nil)))
	return pub.Close
}

// peerPublishing is a publisher with two messages in flight when it is closed, on a channel that is open and on
// another.
func peerPublishing(_ *testing.T, p *peer) func() error {
	config := wmamqp.PublisherConfig{AMQP: p.config(), ConfirmTimeout: time.Hour}
	*wmamqp.Channels(&config) = 2
	pub := testkit.Must(wmamqp.NewPublisher("amqp://peer/", config))
	testkit.Must(0, pub.Publish("q", message.NewMessage("1", nil)))
	return func() error {
		for range 2 {
			go func() { _ = pub.Publish("q", message.NewMessage("2", nil)) }()
		}
		synctest.Wait()
		return pub.Close()
	}
}

// peerOpening is a publisher that opens a channel when it is closed.
func peerOpening(_ *testing.T, p *peer) func() error {
	config := wmamqp.PublisherConfig{AMQP: p.config(), ConfirmTimeout: time.Hour}
	pub := testkit.Must(wmamqp.NewPublisher("amqp://peer/", config))
	return func() error {
		go func() { _ = pub.Publish("q", message.NewMessage("1", nil)) }()
		synctest.Wait()
		return pub.Close()
	}
}

// peerSubscriber is a subscriber with three messages in hand, two of which are not settled: one handler obeys its
// context and one does not.
func peerSubscriber(_ *testing.T, p *peer) func() error {
	sub := testkit.Must(wmamqp.NewSubscriber("amqp://peer/", wmamqp.SubscriberConfig{AMQP: p.config(), InFlight: 3}))
	messages := testkit.Must(sub.Subscribe(context.Background(), "q"))
	first, second := <-messages, <-messages
	<-messages
	first.Ack()
	go func() {
		<-second.Context().Done()
		second.Nack()
	}()
	go func() {
		for msg := range messages {
			msg.Nack()
		}
	}()
	return sub.Close
}

func peerIdle(_ *testing.T, p *peer) func() error {
	return testkit.Must(wmamqp.NewSubscriber("amqp://peer/", wmamqp.SubscriberConfig{AMQP: p.config()})).Close
}
