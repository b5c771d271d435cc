package wmkafka

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature P1: what Publish has confirmed is in the topic, whatever becomes of other messages of the same producer:
// connections are cut in the middle of batches, some messages are tried again, and some are refused for good. Sarama's
// idempotent producer lost some here: docs/kafka.md has the numbers.
func TestConfirmedIsThere(t *testing.T) {
	t.Parallel()
	const publishers, cuts = 32, 150
	c := newCluster(t)
	dialer := &faulty{}
	pub := c.publisher(PublisherConfig{Sarama: func(config *sarama.Config) {
		dialer.into(config)
		config.Producer.Retry.Max, config.Producer.Retry.Backoff = 1, 10*time.Millisecond
		config.Metadata.Retry.Backoff = 10 * time.Millisecond
	}})
	var mu sync.Mutex
	confirmed, refused := map[string]bool{}, 0
	done := make(chan struct{})
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", p, n)
				err := pub.Publish(c.topic, message.NewMessage(id, []byte(id)))
				mu.Lock()
				if err == nil {
					confirmed[id] = true
				} else {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	counts := func() (int, int) {
		mu.Lock()
		defer mu.Unlock()
		return len(confirmed), refused
	}
	for range cuts {
		before, _ := counts()
		for range 3 { // at most two in a row are refused to dial: sarama's breaker would open for 10 s
			dialer.set(false, true)
			dialer.set(false, false)
			time.Sleep(time.Millisecond) // so that some are sent again, and cut again
		}
		c.eventually("messages are confirmed", func() bool { n, _ := counts(); return n > before+publishers })
	}
	close(done)
	all.Wait()
	there := map[string]bool{}
	for _, record := range c.records(c.topic, 1) {
		there[string(record.Value)] = true
	}
	var missing []string
	for id := range confirmed {
		if !there[id] {
			missing = append(missing, id)
		}
	}
	testkit.Check(t, len(missing) == 0, "of %d confirmed messages %d are nowhere, %d were refused: %q", len(confirmed), len(missing),
		refused, missing[:min(len(missing), 20)])
}
