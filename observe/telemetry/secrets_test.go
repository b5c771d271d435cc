package telemetry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/codes"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe/telemetry"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
)

// refusing is a publisher that refuses with an error.
type refusing struct{ err error }

func (r refusing) Publish(string, ...*message.Message) error { return r.err }
func (refusing) Close() error                                { return nil }

// Feature O2: no payload, metadata or credential comes into a span.
func TestNoSecretInSpans(t *testing.T) {
	observed, kept, _ := follow(t, telemetry.Config{})
	config, dead := watched(observed, 2)
	mask := func(text string) string { return strings.ReplaceAll(text, "sesame", "[masked]") }
	config.Privacy = testkit.Must(privacy.New(privacy.Rules{Mask: mask}))
	config.Publisher = refusing{errors.New("dial amqp://shop:tacheles@broker: refused, sesame")}
	config.Queue = poison.QueueConfig{Fallbacks: []poison.Sink{{Publisher: dead}}, PublishAttempts: 1}
	msg := message.NewMessage("7", []byte("payload-secret"))
	msg.Metadata = message.Metadata{
		"name": "metadata-secret", "baggage": "user=baggage-secret", "authorization": "Bearer metadata-secret",
	}
	calls := 0
	consume(t, config, msg, nil, nil, func(msg *message.Message) error {
		if calls++; calls == 1 {
			return errors.New("GET https://me:tacheles@shop/?a=1 with password=hunter2: open sesame")
		}
		panic("Authorization: Bearer tacheles-1234567890, open sesame")
	})
	testkit.Require(t, len(dead.taken) == 1, "no letter")
	described := 0
	for _, span := range kept.GetSpans() {
		all := fmt.Sprintf("%+v", span)
		if span.Status.Code == codes.Error && span.Status.Description != "" {
			described++
		}
		for _, secret := range []string{"payload-secret", "metadata-secret", "baggage-secret", "tacheles", "hunter2", "sesame"} {
			testkit.Check(t, !strings.Contains(all, secret), "a span has %q: %s", secret, all)
		}
	}
	// Two attempts, and a refused letter.
	testkit.Equal(t, "spans that have the masked text of their error", described, 3)
}
