package poison

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/attempts"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/seal"
	"github.com/watermill-spillway/spillway/settings"
)

// BenchmarkSealedLetter is BenchmarkLetter plain and sealed in turns, so that a busy machine slows both. It reports how
// many times as long a sealed letter takes.
func BenchmarkSealedLetter(b *testing.B) {
	keys := testkit.Must(seal.ParseKeyring(testkit.Keyring("k1")))
	s := testkit.Must(seal.New(keys))
	queue := newQueue(b, &sink{}, QueueConfig{Shared: settings.Shared{Seal: s}})
	msg := message.NewMessage("0d9f6f2e-3c5b-4f0e-9b57-6c3d9a1f7c11", make([]byte, 1024))
	for _, k := range []string{"tenant", "event-type", "trace-id", "content-type", "schema"} {
		msg.Metadata.Set(k, "value of "+k)
	}
	failure := &classify.Failure{}
	attempts.Add(failure, panicking(context.Canceled), classify.Verdict{Class: classify.ClassPermanent, Reason: "panic"}, time.Now())
	var spent [2]time.Duration
	for b.Loop() {
		for i := range spent {
			begun := time.Now()
			l := queue.letter(msg.Copy(), failure, naming.Source{Topic: "orders", Handler: "billing"}, false)
			if i == 1 {
				testkit.NoError(b, queue.seal(context.Background(), &l))
			}
			_ = l.encode(queue.limits)
			spent[i] += time.Since(begun)
		}
	}
	b.ReportMetric(float64(spent[0].Nanoseconds())/float64(b.N), "ns/plain")
	b.ReportMetric(float64(spent[1].Nanoseconds())/float64(b.N), "ns/sealed")
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "sealed/plain")
}

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
