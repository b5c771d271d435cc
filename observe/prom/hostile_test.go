package prom_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe/prom"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature O1: 10,000 hostile topics, handlers and reasons make a bounded number of series. Each event is counted.
func TestSeriesAreBounded(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics := testkit.Must(prom.New(prom.Config{Registerer: registry, MaxValues: 50}))
	var config spillway.Config
	testkit.NoError(t, metrics.Observe(&config))
	const n = 10_000
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := w; i < n; i += 4 {
				topic, handler := fmt.Sprintf("topic\n%d\xff", i), fmt.Sprintf("handler\x1b[2J %d", i%100)
				attempt := middleware.Attempt{Topic: topic, Handler: handler}
				if i%2 == 0 {
					attempt.Err, attempt.Verdict.Class = errors.New("boom"), classify.ClassPermanent
				}
				config.Retry.Hooks.OnAttempt(t.Context(), attempt)
				var l poison.Letter
				l.Origin.Topic, l.Origin.Handler, l.Failure.Reason = topic, handler, fmt.Sprint("reason ", i, strings.Repeat("é", 1000))
				config.Queue.Hooks.OnDeadLetter(t.Context(), l)
			}
		})
	}
	workers.Wait()
	families := testkit.Must(registry.Gather())
	const most = 51 * 51 // values of a letter's topic and reason, and other
	sums := make(map[string]float64)
	for _, f := range families {
		testkit.Check(t, len(f.Metric) <= most, "%s has %d series", f.GetName(), len(f.Metric))
		for _, m := range f.Metric {
			sums[f.GetName()] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			for _, l := range m.Label {
				v := l.GetValue()
				testkit.Check(t, utf8.RuneCountInString(v) <= 100 && !strings.ContainsAny(v, "\n\x1b") &&
					utf8.ValidString(v),
					"%s has the label %q", f.GetName(), v)
			}
		}
	}
	for _, name := range []string{"spillway_attempts_total", "spillway_attempt_duration_seconds",
		"spillway_dead_letters_total"} {
		testkit.Equal(t, name, sums[name], n)
	}
	folded := sums["spillway_label_values_folded_total"]
	testkit.Check(t, folded >= n, "%g values are folded", folded)
}

// Feature O1: two channels have series of their own, by a label of the caller's. The error without it says so.
func TestTwoChannels(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	configs := make([]spillway.Config, 2)
	for i := range configs {
		own := prometheus.WrapRegistererWith(prometheus.Labels{"channel": fmt.Sprint(i)}, registry)
		metrics := testkit.Must(prom.New(prom.Config{Registerer: own}))
		configs[i] = spillway.Config{DB: open(t)}
		testkit.NoError(t, metrics.Observe(&configs[i]))
		channel := testkit.Must(spillway.New(t.Context(), configs[i]))
		testkit.NoError(t, metrics.Watch(t.Context(), channel))
		configs[i].Retry.Hooks.OnAttempt(t.Context(), middleware.Attempt{Topic: "orders", Handler: "billing"})
	}
	families := testkit.Must(registry.Gather())
	for _, f := range families {
		if name := f.GetName(); name == "spillway_source_up" || name == "spillway_attempt_duration_seconds" {
			testkit.Equal(t, name, len(f.Metric), 2)
		}
	}
	for says, registerer := range map[string]prometheus.Registerer{
		"same label names": registry,
		"another Metrics":  prometheus.WrapRegistererWith(prometheus.Labels{"channel": "1"}, registry),
	} {
		_, err := prom.New(prom.Config{Registerer: registerer})
		testkit.Says(t, err, says)
		testkit.Says(t, err, "WrapRegistererWith")
	}
	testkit.Equal(t, "series after a Metrics that was refused", len(testkit.Must(registry.Gather())), len(families))
}
