package wmkafka

import (
	"context"
	"errors"
	"strings"
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
	if _, err := pub.ListWaiting(ended, c.topic); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), c.topic) {
		t.Error(err)
	}
	dialer.set(true, false)
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for name, ctx := range map[string]context.Context{"deadline": soon, "none": t.Context()} {
		start, done := time.Now(), make(chan error, 1)
		go func() { _, err := pub.ListWaiting(ctx, c.topic); done <- err }()
		select {
		case err := <-done:
			t.Logf("%s: %s: %v", name, time.Since(start), err)
			testkit.Check(t, errors.Is(err, context.DeadlineExceeded), "%s: %v", name, err)
		case <-time.After(patience):
			t.Fatalf("%s: it goes on", name)
		}
	}
	dialer.set(false, false)
	testkit.NoError(t, pub.Close())
	testkit.Is(t, testkit.Err(pub.ListWaiting(t.Context(), c.topic)), ErrClosed)
}
