package columns_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// Promise P7: redisstream passes an ack on in a goroutine of its own, and not after its context's end. What a drain
// took last is acked all the same, or the next drain would bring it back again. It runs before the parallel tests,
// which restart the server.
func TestRedisDrainAcksItsLast(t *testing.T) {
	b := redisBroker(services.Redis(t))
	topic, group := "drained-"+rand.Text(), "drains"
	b.createTopic(t, topic)
	b.createTopic(t, topic+".dlq")
	pub := b.publisher(t, b.options())
	t.Cleanup(func() { _ = pub.Close() })
	for i := range 8 {
		letter := message.NewMessage(fmt.Sprint(i), []byte("v"))
		letter.Metadata = message.Metadata{poison.KeyOriginalTopic: topic, poison.KeyFailureClass: "permanent"}
		testkit.NoError(t, pub.Publish(topic+".dlq", letter))
		sub := b.subscriber(t, group, redisIdle, b.options())
		report, err := redrive.DrainTopic(t.Context(), sub, pub, redrive.DrainTopicConfig{
			Rules: redrive.Rules{Allow: []string{topic}}, Topic: topic + ".dlq", Park: pub, Backlog: b.backlog(t, group),
		})
		if err != nil || report.Redriven != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		b.admin(t, func(ctx context.Context, client redis.UniversalClient) error {
			pending, err := client.XPending(ctx, topic+".dlq", group).Result()
			if err == nil && pending.Count != 0 {
				t.Errorf("after drain %d, %d letters are not acked", i, pending.Count)
			}
			return err
		})
	}
}
