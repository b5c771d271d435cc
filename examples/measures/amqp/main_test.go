package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both sides are measured to the end, and the lines say what is asked for. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.AMQP(t)
	var out strings.Builder
	if err := (plan{rounds: 1, messages: 30, kinds: []string{amqp091.QueueTypeQuorum}, prefetches: []int{1}}).run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(out.String()) {
		figure := map[string]any{}
		if err := json.Unmarshal([]byte(line), &figure); err != nil || figure["failing_percent"] != float64(percents[lines]) {
			t.Fatal(line, err)
		}
		for _, name := range []string{"good_per_s", "each_confirmed_per_s", "ratio", "share", "share_each_confirmed"} {
			value, there := figure[name].(float64)
			if rate := strings.HasSuffix(name, "_per_s"); !there || rate && value <= 0 {
				t.Errorf("%s: %s", name, line)
			}
		}
		lines++
	}
	if lines != len(percents) {
		t.Errorf("%d lines", lines)
	}
}
