package telemetry_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/observe/telemetry"
	"github.com/watermill-spillway/spillway/redrive"
)

// withStages adds the handler billing with stages, whose subscriber of the live topic is sub.
func withStages(topic string, sub message.Subscriber) func(*testing.T, *spillway.Channel, *message.Router, message.NoPublishHandlerFunc) {
	return func(t *testing.T, channel *spillway.Channel, router *message.Router, h message.NoPublishHandlerFunc) {
		testkit.Must(channel.Stages().AddConsumerHandler(router, "billing", topic, sub, h))
	}
}

// Feature O2: over a stage topic, the dead-letter store and a drain, on Go channels.
func TestStoryInMemory(t *testing.T) {
	live, waiting := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil), gochannel.NewGoChannel(gochannel.Config{}, nil)
	w := world{
		system: "gochannel", live: live, topic: "orders", stage: "orders.billing.retry.10ms", dead: "orders.dlq",
		config: spillway.Config{Service: "shop", DB: open(t), Stages: &stages.Config{
			Publisher: waiting, Stages: stages.Delays(10 * time.Millisecond),
			Subscriber: func(string, string) (message.Subscriber, error) { return waiting, nil },
		}},
		handle: withStages("orders", live),
		back: func(t *testing.T, channel *spillway.Channel, observed *telemetry.Telemetry) {
			report, err := redrive.Drain(t.Context(), channel.Letters(), live, redrive.DrainConfig{
				Rules: redrive.Rules{Allow: []string{"orders"}, Hooks: observed.Redrives(redrive.Hooks{})},
			})
			if err != nil || report.Redriven != 1 {
				t.Errorf("%+v, error %v", report, err)
			}
		},
	}
	spans := tell(t, w)
	judge(t, w, spans)
	t.Log("\n" + tree(spans))
}
