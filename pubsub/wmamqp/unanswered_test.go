package wmamqp_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// Feature D4: a broker that answers heartbeats, and confirms nothing, does not keep a publisher for ever. The publisher
// dials again, and goes on.
func TestPublishToPeerThatConfirmsNothing(t *testing.T) {
	if unracedAlone(t) {
		return
	}
	for _, how := range []string{deaf, stingy} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{}
				pub, err := wmamqp.NewPublisher("amqp://peer/", wmamqp.PublisherConfig{AMQP: p.config()})
				testkit.NoError(t, err)
				publish := func() error { return pub.Publish("q", message.NewMessage("1", nil)) }
				testkit.NoError(t, publish())
				p.falls(how)
				begun := time.Now()
				for err = publish(); err != nil && time.Since(begun) < 5*time.Minute; err = publish() {
					time.Sleep(100 * time.Millisecond)
				}
				took := time.Since(begun)
				testkit.Check(t, err == nil && took <= 50*time.Second, "confirmed after %s: %v", took, err)
				if err := pub.Close(); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * time.Minute)
			})
		})
	}
}
