package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/chart"
	"github.com/watermill-spillway/spillway/internal/testing/leaks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// short is a plan of a second or two.
func short(t *testing.T, args ...string) *Plan {
	t.Helper()
	return testkit.Must(
		parse(append([]string{"-before", "200ms", "-down", "300ms", "-after", "300ms", "-rate", "50"}, args...)))
}

// until keeps the downstream away until something is there to be seen, however slow the machine.
func until(t *testing.T, seen func(*history) bool) func(*history) {
	return func(s *history) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !seen(s); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("it was not to be seen in a minute")
				return
			}
		}
	}
}

// Without the breaker an outage dead-letters healthy webhooks, which the result says.
func TestWithout(t *testing.T) {
	t.Parallel()
	plan := short(t, "-without")
	plan.downUntil = until(t, func(s *history) bool { return s.service.meter.letters.Load() > int64(len(plan.poisoned)) })
	result, err := run(t.Context(), plan)
	testkit.Check(t, err == nil && result.DeadLetteredByIt != 0 && !result.Good() && result.Lost == 0 &&
		result.DuplicateEffects == 0, "%s, %v", result.JSON(), err)
}

// What makes no sense is refused before anything is opened, by the name of its flag.
func TestReady(t *testing.T) {
	for _, args := range []string{
		"-on nats", "-how sulk", "-rate 0", "-rate 10001", "-down 1ms", "-before -1s", "-after 2h", "-in-flight 0", "-in-flight 1001",
		"-poison 1", "-poison NaN", "-poison -1", "-limit 0s", "-rate 10000 -down 1h", "-input /nowhere",
	} {
		plan := short(t, strings.Fields(args)...)
		_, err := run(context.Background(), plan)
		flag, _, _ := strings.Cut(args, " ")
		testkit.Check(t, err != nil && (strings.Contains(err.Error(), flag) || flag == "-input"), "%s: %v", args, err)
	}
	testkit.Check(t, testkit.Err(parse([]string{"more"})) != nil, "an argument is taken for nothing")
}

// The chart fits a terminal of 80 columns, whatever the numbers.
func TestPicture(t *testing.T) {
	w := &watch{Picture: chart.Picture{Out: os.Stderr}, start: time.Now(), history: &history{plan: &Plan{Rate: 100}, down: &downstream{}}}
	w.last = sample{at: w.start.Add(99 * time.Hour), handled: 1e6, calls: 1e6, dead: 1e5, backlog: 1e5, held: 1000, state: "probing", perSecond: 1e5, callsOfOne: 1e5}
	w.rates, w.calls, w.dead = slices.Repeat([]float64{1e6}, 100), slices.Repeat([]float64{1e6}, 100), slices.Repeat([]float64{1e6}, 100)
	w.breaker = slices.Repeat([]string{"closed", "open", "probing", "ramping"}, 100)
	for _, line := range w.picture() {
		n := len([]rune(line))
		testkit.Check(t, n <= 79, "%d columns: %s", n, line)
	}
	got := strip([]string{"closed", "open", "probing", "ramping", "closed"})
	testkit.Check(t, got == "·opr·", "%v", got)
}

// Promise P3, feature R12, end to end: with the breaker an outage dead-letters nothing, loses nothing, and the
// downstream is hardly called.
func TestGuarded(t *testing.T) {
	for _, c := range []struct{ on, how string }{
		{"memory", refuse}, {"memory", busy}, {"kafka", refuse}, {"rabbitmq", refuse}, {"postgres", refuse},
	} {
		t.Run(c.on+" "+c.how, func(t *testing.T) {
			t.Parallel()
			if c.on != "memory" {
				services.Need(t, c.on)
			}
			plan := short(t, "-how", c.how, "-on", c.on)
			plan.downUntil = until(t, func(s *history) bool { return s.service.meter.probes.Load() >= 2 })
			result, err := run(t.Context(), plan)
			testkit.Check(t, err == nil && result.Good() && result.DeadLettered == len(plan.poisoned),
				"%s, %v", result.JSON(), err)
			if most := 2*plan.InFlight + result.Probes; result.CallsDuring > most {
				t.Errorf("%d calls, which is more than %d: %s", result.CallsDuring, most, result.JSON())
			}
		})
	}
}
