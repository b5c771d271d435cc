package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/crash/crashtest"
	"github.com/watermill-spillway/spillway/internal/testing/leaks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// short is a plan whose stages end before the downstream recovers, so that there are dead letters too.
func short(t *testing.T, args ...string) *Plan {
	return testkit.Must(parse(append([]string{"-down", "1s", "-stages", "50ms,150ms,400ms", "-rate", "100"}, args...)))
}

func whole(t *testing.T, plan *Plan) Result {
	t.Helper()
	services.Kafka(t)
	result := testkit.Must(run(context.Background(), plan))
	different := map[string]bool{}
	for _, msg := range plan.deliveries {
		different[msg.UUID] = true
	}
	testkit.Check(t, result.Good() && result.Published == len(plan.deliveries) && result.Refusals != 0,
		"%v", result.JSON())
	if result.Unhandled == 0 && result.Applied+result.AppliedAfterRedrive+result.Remaining != len(different) {
		t.Errorf("the sums are not %d: %s", len(different), result.JSON())
	}
	crashtest.NothingIsLeft(t, plan.Topic)
	return result
}

// waitFor keeps the downstream down until something is there to be seen, however slow the machine.
func waitFor(seen func(*history) (bool, error)) func(context.Context, *history) error {
	return func(_ context.Context, s *history) error {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if ok, err := seen(s); err != nil || ok {
				return err
			}
		}
		return errors.New("it was not to be seen in a minute")
	}
}

// Promise R5 end to end: the live topic goes on while messages wait, and in the end each has taken effect, once.
func TestStages(t *testing.T) {
	plan := short(t)
	plan.downUntil = waitFor(func(s *history) (bool, error) {
		dead, err := s.consumer.letters.Count(t.Context(), letters.Filter{})
		if err != nil || dead == 0 {
			return false, err
		}
		stored, err := plan.effects(t.Context(), s.consumer.db)
		return stored.live > plan.before, err
	})
	r := whole(t, plan)
	testkit.Check(t, r.Staged != 0 && r.DeadLettered != 0 && r.Redriven == r.DeadLettered && r.Remaining == 0 &&
		r.Unhandled == 0 && r.Retries == 0, "%v", r.JSON())
	testkit.Check(t, r.Reentered >= r.Staged+r.Redriven,
		"%d went to stages and %d were redriven: %s", r.Staged, r.Redriven, r.JSON())
	testkit.Check(t, r.LiveBehindFailure != 0 && r.LivePerSWhileDown != 0, "the live topic stood still: %s", r.JSON())
}

// Without the stages nothing behind the first failure is handled, until the downstream is back.
func TestBlocking(t *testing.T) {
	plan := short(t, "-blocking")
	plan.downUntil = waitFor(func(s *history) (bool, error) { return s.consumer.retries.Load() > 0, nil })
	r := whole(t, plan)
	testkit.Check(t, r.LiveBehindFailure == 0 && r.Retries != 0 && r.Staged == 0 && r.DeadLettered == 0 &&
		r.Unhandled == 0, "%v", r.JSON())
}

// What no consumer waits for is unhandled, and not lost.
func TestUnhandled(t *testing.T) {
	plan := short(t, "-blocking", "-stages", "1m", "-limit", "1s")
	plan.downUntil = waitFor(func(s *history) (bool, error) { return s.down.refused.Load() > 0, nil })
	r := whole(t, plan)
	testkit.Check(t, r.Unhandled != 0 && r.LiveBehindFailure == 0, "%v", r.JSON())
}

// What cannot be done is an error that says what to do, before anything is made on Kafka.
func TestRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"-rate 0":                             "-rate 0: give 1",
		"-rate 10000 -down 1h":                "at most 100000",
		"-down 1ms":                           "-down 1ms: give 1s",
		"-down -20s":                          "-down -20s",
		"-limit 0s":                           "-limit 0s",
		"-stages 1s,x":                        "-stages \"1s,x\"",
		"-stages 1s,1s":                       "different delays",
		"-stages 1h":                          "give 1 to 10 delays",
		"-stages 0s":                          "give 1 to 10 delays",
		"-needs nothing":                      "0 of 3000 events",
		"-input nowhere.jsonl":                "no such file",
		"everything":                          "unknown argument \"everything\"",
		"-brokers 127.0.0.1:1":                "-brokers",
		"-database http://me:secret@nowhere/": "-database",
	} {
		t.Run(args, func(t *testing.T) {
			t.Setenv("SPILLWAY_POSTGRES", "")
			t.Setenv("SPILLWAY_POSTGRES_PORT", "1")
			t.Setenv("SPILLWAY_KAFKA", "127.0.0.1:1")
			plan, err := parse(strings.Fields(args))
			if err == nil {
				_, err = run(context.Background(), plan)
			}
			testkit.Check(t, err != nil && strings.Contains(err.Error(), want) &&
				!strings.Contains(err.Error(), "secret"), "%v; want %s", err, want)
		})
	}
}

// The chart fits a terminal of 80 columns, whatever the numbers.
func TestChart(t *testing.T) {
	plan := &Plan{Setting: crash.Setting{}, Rate: 100, Stages: []time.Duration{time.Second, 10 * time.Second}}
	c := &watch{plan: plan, consumer: newConsumer(plan, nil, nil, nil), down: &downstream{}}
	for range 100 {
		c.rates = append(c.rates, 1e6)
	}
	c.consumer.waiting[1].Store(1 << 20)
	c.consumer.waiting[0].Store(-1)
	for _, line := range c.picture(1e6) {
		n := len([]rune(line))
		testkit.Check(t, n <= 79 && !strings.Contains(line, "-1"), "%d columns: %s", n, line)
	}
}
