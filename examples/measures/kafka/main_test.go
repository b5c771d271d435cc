package main

import (
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) {
	// Sarama's metrics have one goroutine for the whole process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// Both sides are measured to the end, and the lines say what is asked for. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.Kafka(t)
	var out strings.Builder
	testkit.NoError(t, (plan{rounds: 1, happy: 200, deadLetters: 20}).run(t.Context(), &out))
	letter := "failing_percent confirmed_publish_us"
	want := []string{"bare_per_s spillway_per_s ratio", letter + " dead_letter_us ratio", letter + " dead_letter_us ratio"}
	for line := range strings.Lines(out.String()) {
		figure := map[string]any{}
		if err := json.Unmarshal([]byte(line), &figure); err != nil || len(want) == 0 {
			t.Fatal(line, err)
		}
		for _, name := range strings.Fields(want[0]) {
			value, there := figure[name].(float64)
			less := figure["failing_percent"] == float64(tenth) // what a tenth adds is a difference, which may be less than the noise
			if !there || value <= 0 && !less {
				t.Errorf("%s: %s", name, line)
			}
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("missing: %q", want)
	}
}
