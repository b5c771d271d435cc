package prom_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe/prom"
)

// Feature O1: metrics that no channel has are silently dead. Watch says so.
func TestWatchWithoutObserve(t *testing.T) {
	metrics, _ := observing(t)
	dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: nowhere{}}))
	if err := metrics.Watch(t.Context(), dlc); err == nil || !strings.Contains(err.Error(), "name the Metrics in Config.Observers") {
		t.Error(err)
	}
}

// Feature O1: a hook of the user's takes nothing from the metrics, and is called too.
func TestHooksBesideMetrics(t *testing.T) {
	metrics, registry := observing(t)
	theirs := 0
	dlc, err := spillway.New(t.Context(), spillway.Config{Publisher: nowhere{}, Observers: []spillway.Observer{metrics},
		Retry: middleware.RetryConfig{Attempts: 1, Hooks: middleware.RetryHooks{
			OnAttempt: func(context.Context, middleware.Attempt) { theirs++ }}}})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Must(dlc.Middleware(message.PassthroughHandler)(message.NewMessage("1", nil)))
	if n, err := testutil.GatherAndCount(registry, "spillway_attempts_total"); n == 0 || theirs != 1 {
		t.Errorf("%d series of attempts, %d calls of the user's hook: %v", n, theirs, err)
	}
}

func observing(t *testing.T) (*prom.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	metrics := testkit.Must(prom.New(prom.Config{Registerer: registry}))
	return metrics, registry
}
