package main

import (
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/leaks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// Both sides are measured to the end, and the lines say what is asked for. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.Kafka(t)
	p := plan{rounds: 1, happy: 200, deadLetters: 20}
	// What a tenth adds is a difference, which may be less than the noise.
	testkit.NoError(t, harness.Measures(t.Context(), p.run, "bare_per_s spillway_per_s ratio",
		"failing_percent=10 confirmed_publish_us? dead_letter_us? ratio?",
		"failing_percent=100 confirmed_publish_us dead_letter_us ratio"))
}
