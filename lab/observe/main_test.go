package main

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe/alerts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Hurry divides times and limits in seconds, and nothing else.
func TestHurry(t *testing.T) {
	for rule, want := range map[string]string{
		"record: spillway:limit:oldest_letter_seconds\n  expr: vector(14400)": "record: spillway:limit:oldest_letter_seconds\n  expr: vector(15)",
		"record: spillway:limit:letters_per_15m\n  expr: vector(600)":         "record: spillway:limit:letters_per_15m\n  expr: vector(600)",
		"increase(x[15m]) / 96 unless last_over_time(x[1h] offset 30m)":       "increase(x[15000ms]) / 96 unless last_over_time(x[60000ms] offset 30000ms)",
		"for: 0s\nkeep_firing_for: 5m\ndescription: >- in 15 minutes, for 5m": "for: 0ms\nkeep_firing_for: 5000ms\ndescription: >- in 15 minutes, for 5m",
	} {
		testkit.Equal(t, rule, Hurry(rule), want)
	}
}

// Every alert of the rules has a fault in the story, and every rule and panel a query.
func TestComplete(t *testing.T) {
	shop := &shop{}
	shop.one = &instance{}
	s := &history{shop: shop}
	played := "SpillwayNewCause SpillwayLettersArriveFaster SpillwayOldestLetterTooOld SpillwayRedrivenFailAgain SpillwayCampaignStopped " +
		"SpillwayLettersQuarantined SpillwaySourceUnreachable SpillwayStoreUnavailable SpillwayInstanceDown SpillwaySeriesAbsent" // in bug and tell
	for _, f := range append(s.handlers(), s.databases()...) {
		played += " " + strings.Join(f.alerts, " ")
	}
	for _, name := range names() {
		testkit.Check(t, slices.Contains(strings.Fields(played), name), "nothing in the story makes %s fire", name)
	}
	rules := len(regexp.MustCompile(`(?m)^ *expr:`).FindAllString(string(alerts.Rules()), -1))
	got := ruled()
	testkit.Check(t, len(got) == rules && rules >= 30, "%d rules have a query, want %d", len(got), rules)
	panels, err := board()
	testkit.Require(t, err == nil && len(panels) >= 50, "%d queries of the dashboard, %v", len(panels), err)
	for _, name := range silent {
		testkit.Check(t, slices.ContainsFunc(panels, func(q query) bool { return q.where == name }),
			"%s is said to be silent, and is no panel", name)
	}
}

// The shop runs: each topic is handled, and a page has the metrics of its instance until it is unavailable.
func TestShop(t *testing.T) {
	s := testkit.Must(openShop(t.Context(), t.TempDir()))
	defer func() { testkit.NoError(t, s.close()) }()
	s.faults.bug.Store(true)
	testkit.NoError(t, s.publish("orders", "customer", 3))
	testkit.Eventually(t, "three letters", func() bool {
		return scrape(t, s.one.page.address, `spillway_dead_letters_total{class="permanent",handler="billing",reason="no_customer",topic="orders"} 3`)
	})
	s.two.page.unavailable.Store(true)
	testkit.Check(t, !scrape(t, s.two.page.address, "spillway_ok"), "a page that is unavailable answers")
}

// scrape reports whether a page has a text. A page that is unavailable has none.
func scrape(t *testing.T, address, text string) bool {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + address)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return err == nil && strings.Contains(string(body), text)
}
