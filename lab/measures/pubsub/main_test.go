package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// reader is the subscriber's, which sleeps half a second after the error with which its client's Close ends it.
var reader = goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream.(*Subscriber).read")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, reader) }

// All sides are measured to the end, and the lines say what is asked for. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.Need(t, "redis", "nats")
	for _, b := range brokers {
		var out strings.Builder
		testkit.NoError(t, (plan{rounds: 1, happy: 50, deadLetters: 10}).run(t.Context(), &out, b))
		of := "pubsub=" + b.name
		testkit.NoError(t, harness.Complete(out.String(), of+" bare_per_s spillway_per_s ratio", of+" confirmed_publish_us bare_us dead_letter_us"))
	}
	// A router does not wait for its subscribers' Close.
	testkit.Eventually(t, "the subscribers are closed", func() bool { return goleak.Find(reader) == nil })
}
