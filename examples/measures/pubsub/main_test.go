package main

import (
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// reader is the subscriber's, which sleeps half a second after the error with which its client's Close ends it.
var reader = goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream.(*Subscriber).read")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, reader) }

// All sides are measured to the end, and the lines say what is asked for. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.Redis(t)
	services.NATS(t)
	for _, b := range brokers {
		var out strings.Builder
		testkit.NoError(t, (plan{rounds: 1, happy: 50, deadLetters: 10}).run(t.Context(), &out, b))
		want := []string{"bare_per_s spillway_per_s ratio", "confirmed_publish_us bare_us dead_letter_us"}
		for line := range strings.Lines(out.String()) {
			figure := map[string]any{}
			if err := json.Unmarshal([]byte(line), &figure); err != nil || len(want) == 0 || figure["pubsub"] != b.name {
				t.Fatal(line, err)
			}
			for _, name := range strings.Fields(want[0]) {
				if value, _ := figure[name].(float64); value <= 0 {
					t.Errorf("%s: %s", name, line)
				}
			}
			want = want[1:]
		}
		if len(want) > 0 {
			t.Errorf("%s: missing: %q", b.name, want)
		}
	}
	// A router does not wait for its subscribers' Close.
	testkit.Eventually(t, "the subscribers are closed", func() bool { return goleak.Find(reader) == nil })
}
