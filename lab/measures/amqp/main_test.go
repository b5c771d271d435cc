package main

import (
	"fmt"
	"testing"

	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both sides are measured to the end, and the lines say what is asked for. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.AMQP(t)
	p := plan{rounds: 1, messages: 30, kinds: []string{amqp091.QueueTypeQuorum}, prefetches: []int{1}}
	var want []string
	for _, percent := range percents {
		want = append(want, fmt.Sprintf("failing_percent=%d good_per_s each_confirmed_per_s ratio? share? share_each_confirmed?", percent))
	}
	testkit.NoError(t, harness.Measures(t.Context(), p.run, want...))
}
