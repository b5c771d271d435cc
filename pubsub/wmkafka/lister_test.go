package wmkafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Feature R5 (abandoned stages): topics with messages that the group of the same name has not acked are listed, with how
// many, all partitions counted; those that are consumed, empty or named otherwise are not.
func TestListWaiting(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pub := c.publisher(PublisherConfig{})
	fill := func(topic string, partitions int32, n int) string {
		t.Helper()
		topic = c.topic + topic
		c.create(topic, partitions, nil)
		for i := range n {
			if err := pub.Publish(topic, message.NewMessage(fmt.Sprint(i), nil)); err != nil {
				t.Fatal(err)
			}
		}
		return topic
	}
	none, half := fill(".none.retry.1s", 3, 7), fill(".half.retry.1s", 1, 5)
	done, other := fill(".done.retry.1s", 1, 3), fill("-other.retry.1s", 1, 2)
	fill(".empty.retry.1s", 2, 0)
	for topic, n := range map[string]int{half: 2, done: 3} {
		sub := c.subscriber(SubscriberConfig{}, topic)
		messages, err := sub.Subscribe(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			c.next(messages).Ack()
		}
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, want := range map[string]map[string]int{
		c.topic + ".":          {none: 7, half: 3},
		c.topic:                {none: 7, half: 3, other: 2},
		c.topic + ".nobody":    {},
		c.topic + ".half.retr": {half: 3},
	} {
		if found, err := pub.ListWaiting(t.Context(), prefix); err != nil || !maps.Equal(found, want) {
			t.Errorf("%s: %v, %v; want %v", prefix, found, err, want)
		}
	}
}

// It ends with its context, with what the broker does not answer, and with the publisher; the error names the prefix.
func TestListWaitingEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer := &faulty{}
	config := dialer.into(SaramaPublisherConfig())
	config.Net.ReadTimeout = time.Hour // so that the client alone would never end
	pub := c.publisher(PublisherConfig{Sarama: config})
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
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s: it goes on", name)
		}
	}
	dialer.set(false, false)
	if err := pub.Close(); err != nil {
		t.Error(err)
	}
	if _, err := pub.ListWaiting(t.Context(), c.topic); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
