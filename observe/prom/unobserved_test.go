package prom_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe/prom"
)

// Feature O1: metrics whose hooks the channel has not are silently dead. Watch says so, if Observe came after New, or
// was forgotten.
func TestWatchWithoutObserve(t *testing.T) {
	for _, late := range []bool{false, true} {
		metrics, _ := observing(t)
		config := spillway.Config{Publisher: nowhere{}}
		dlc, err := spillway.New(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if late {
			if err := metrics.Observe(&config); err != nil {
				t.Fatal(err)
			}
		}
		if err := metrics.Watch(t.Context(), dlc); err == nil || !strings.Contains(err.Error(), "call Observe with the Config, before spillway.New") {
			t.Errorf("late %v: %v", late, err)
		}
	}
}

// Feature O1: a second Observe of a Config, or of its copy, would count twice. One Metrics may observe several.
func TestObserveTwice(t *testing.T) {
	metrics, _ := observing(t)
	var config, another spillway.Config
	if err := metrics.Observe(&config); err != nil {
		t.Fatal(err)
	}
	again := config
	for _, config := range []*spillway.Config{&config, &again} {
		if err := metrics.Observe(config); err == nil || !strings.Contains(err.Error(), "count twice") {
			t.Error(err)
		}
	}
	if err := metrics.Observe(&another); err != nil {
		t.Error(err)
	}
}

// Bad input: nil is an error with a sentence.
func TestObserveNil(t *testing.T) {
	metrics, _ := observing(t)
	if err := metrics.Observe(nil); err == nil || !strings.Contains(err.Error(), "the Config is nil") {
		t.Error(err)
	}
	if err := (*prom.Metrics)(nil).Observe(&spillway.Config{}); err == nil || !strings.Contains(err.Error(), "check the error of New") {
		t.Error(err)
	}
}

// Feature O1: a hook, or a whole part, that is set after Observe takes nothing from the metrics, and is called too.
func TestHooksAfterObserve(t *testing.T) {
	metrics, registry := observing(t)
	config := spillway.Config{Publisher: nowhere{}}
	if err := metrics.Observe(&config); err != nil {
		t.Fatal(err)
	}
	theirs := 0
	config.Retry = middleware.RetryConfig{Attempts: 1, OnAttempt: func(context.Context, middleware.Attempt) { theirs++ }}
	dlc, err := spillway.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dlc.Middleware(message.PassthroughHandler)(message.NewMessage("1", nil)); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(registry, "spillway_attempts_total"); n == 0 || theirs != 1 {
		t.Errorf("%d series of attempts, %d calls of the user's hook: %v", n, theirs, err)
	}
}

func observing(t *testing.T) (*prom.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	metrics, err := prom.New(prom.Config{Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	return metrics, registry
}
