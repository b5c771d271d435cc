package poison

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/attempts"
	"github.com/watermill-spillway/spillway/naming"
)

// BenchmarkLetter is the whole way from a failed message to the letter that is published: cause, stack, hash, texts.
func BenchmarkLetter(b *testing.B) {
	queue := newQueue(b, &sink{}, QueueConfig{})
	failure := &classify.Failure{}
	attempts.Add(failure, panicking(errors.New("index out of range")), classify.Verdict{Class: classify.ClassPermanent, Reason: "panic"}, time.Now())
	msg := message.NewMessage("0d9f6f2e-3c5b-4f0e-9b57-6c3d9a1f7c11", make([]byte, 1024))
	for _, k := range []string{"tenant", "event-type", "trace-id", "content-type", "schema"} {
		msg.Metadata.Set(k, "value of "+k)
	}
	b.ReportAllocs()
	for b.Loop() {
		l := queue.letter(msg.Copy(), failure, naming.Source{Topic: "orders", Handler: "billing"}, false)
		_ = l.encode(queue.limits)
	}
}
