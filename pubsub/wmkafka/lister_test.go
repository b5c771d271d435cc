package wmkafka

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// It ends with its context, with what the broker does not answer, and with the publisher; the error names the prefix.
func TestListWaitingEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer := &faulty{}
	pub := c.publisher(PublisherConfig{Sarama: func(config *sarama.Config) {
		dialer.into(config)
		config.Net.ReadTimeout = time.Hour // so that the client alone would never end
	}})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := testkit.Err(pub.ListWaiting(ended, c.topic))
	testkit.Is(t, err, context.Canceled)
	testkit.Says(t, err, c.topic)
	dialer.set(true, false)
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, ctx := range []context.Context{soon, t.Context()} {
		testkit.Within(t, "it ends", func() {
			testkit.Is(t, testkit.Err(pub.ListWaiting(ctx, c.topic)), context.DeadlineExceeded)
		})
	}
	dialer.set(false, false)
	testkit.NoError(t, pub.Close())
	testkit.Is(t, testkit.Err(pub.ListWaiting(t.Context(), c.topic)), ErrClosed)
}
