package prom_test

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/observe/prom"
)

// served returns what Prometheus gets from a registry.
func served(registry *prometheus.Registry) string {
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer,
		httptest.NewRequest(http.MethodGet, "/", nil))
	return answer.Body.String()
}

// Feature O1: promtool finds nothing wrong when each event happened.
func TestPromtool(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	campaign := everything(t, registry)
	scraped := served(registry)
	for _, series := range []string{
		`spillway_deliveries_unfinished_total{handler="billing"} 1`,
		`spillway_outage_wait_seconds_count{handler="billing"} 1`,
		`spillway_redriven_failed_again_total{class="permanent",handler="billing",reason="gone",topic="orders"} 1`,
		`spillway_dead_letters_total{class="permanent",handler="billing",reason="gone",topic="orders"} 1`,
		`spillway_retry_budget_refusals_total{handler="",to="stage",traffic="live"} 1`,
		`spillway_purged_total{purge="keys"} 3`, `spillway_purged_total{purge="letters"} 4`,
		`spillway_purge_failures_total{purge="keys"} 1`, `spillway_purge_failures_total{purge="letters"} 1`,
		`spillway_purge_interval_seconds{purge="keys"} 3600`, `spillway_purge_interval_seconds{purge="letters"} 3600`,
		`spillway_stage_lateness_seconds_sum{handler="billing",stage="1",topic="orders"} 86400`,
		`spillway_stage_waiting{handler="other",topic="other"} 2`, `spillway_stage_waiting{handler="billing",topic="orders"} 1`,
		`spillway_stage_overdue_seconds{handler="billing",topic="orders"} 0`,
		`spillway_sequences{topic="orders"} 3`, `spillway_sequences{topic="stock"} 1`, `spillway_sequences_held{topic="orders"} 1`,
		`spillway_sequences_held{topic="stock"} 0`, `spillway_sequences_waiting{topic="orders"} 4`,
		`spillway_sequences_overdue_seconds{topic="stock"} 0`, `spillway_sequences_overdue_seconds{topic="orders"} 3.60000`,
		`spillway_source_up{source="sequences"} 1`,
		`spillway_campaigns{state="paused"} 1`, `spillway_campaigns_stopped 1`, `spillway_campaign_letters{campaign="` +
			campaign + `",outcome="pending"} 1`,
		`spillway_letters{status="waiting"} 1`, `spillway_letters{status="failed_again"} 0`,
		`spillway_source_up{source="letters"} 1`, `spillway_source_up{source="stages"} 1`, `spillway_source_up{source="campaigns"} 1`,
		`spillway_letters_newest_cause_timestamp_seconds{class="unknown",handler="billing",reason="boom",topic="orders"}`,
	} {
		testkit.Check(t, strings.Contains(scraped, "\n"+series), "there is no %s", series)
	}
	if t.Failed() {
		t.Log(scraped)
	}
	tool := exec.CommandContext(t.Context(), services.Promtool(t), "check", "metrics")
	tool.Stdin = strings.NewReader(scraped)
	out, err := tool.CombinedOutput()
	testkit.Check(t, err == nil && len(out) == 0, "%v: %s", err, out)
}

// Feature O1: a store that the caller made, and gave as the Publisher, is read as the channel's own is.
func TestStoreOfTheCaller(t *testing.T) {
	all := instances(t, databases.SQLite, databases.SQLite.Create(t), 1, time.Minute, time.Minute)
	registry := prometheus.NewPedanticRegistry()
	metrics := testkit.Must(prom.New(prom.Config{Registerer: registry}))
	channel := testkit.Must(spillway.New(t.Context(), spillway.Config{
		Publisher: all[0].channel.Letters(), Observers: []spillway.Observer{metrics},
	}))
	testkit.NoError(t, metrics.Watch(t.Context(), channel))
	scraped := served(registry)
	testkit.Check(t, strings.Contains(scraped, `spillway_source_up{source="letters"} 1`), "%s", scraped)
}
