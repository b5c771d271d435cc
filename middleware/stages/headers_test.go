package stages_test

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// inHeaders changes metadata as NATS does on the way into a stage.
type inHeaders struct{ message.Publisher }

func (p inHeaders) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		for key, value := range msg.Metadata {
			delete(msg.Metadata, key)
			if !strings.ContainsAny(key, " :\n") {
				msg.Metadata[key] = strings.TrimSpace(strings.ReplaceAll(value, "\n", " "))
			}
		}
	}
	return p.Publisher.Publish(topic, messages...)
}

// Feature R10, promise P2: metadata that a stage's transport changes or loses are what they were for each attempt, in
// each stage.
func TestStageBehindHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker()
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, time.Minute), Publisher: inHeaders{b}}, nil)
		s.broker = b
		sent := message.Metadata{"k": "a\nb", "outer": " c ", "a key": "v", "urn:x": "y", "plain": "z"}
		var seen []message.Metadata
		s.handle("billing", "orders", func(msg *message.Message) error {
			seen = append(seen, poison.Inside().ProducerMetadata(maps.Clone(msg.Metadata)))
			if packed := msg.Metadata[poison.KeyOriginalMetadata]; packed != "" {
				t.Errorf("the handler sees what is packed: %q", packed)
			}
			return errBoom
		})
		s.run()
		msg := message.NewMessage("m", nil)
		msg.Metadata = maps.Clone(sent)
		testkit.NoError(t, b.Publish("orders", msg))
		time.Sleep(5 * time.Minute)
		s.stop()
		if len(seen) != 3 {
			t.Errorf("handled %d times", len(seen))
		}
		for i, metadata := range append(seen, s.letters.all()["m"].Original.Metadata) {
			if !maps.Equal(metadata, sent) {
				t.Errorf("attempt %d: %q", i, metadata)
			}
		}
	})
}
