package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/observe/alerts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Hurry divides times and limits in seconds, and nothing else.
func TestHurry(t *testing.T) {
	const rules = `
      - record: spillway:limit:oldest_letter_seconds
        expr: vector(14400)
      - record: spillway:limit:stage_late_seconds
        expr: vector(60)
      - record: spillway:limit:letters_per_15m
        expr: vector(600)
        expr: increase(x[15m]) / 96 unless last_over_time(x[1h] offset 30m)
        for: 0s
        keep_firing_for: 5m
          description: >- in 15 minutes, for 5m`
	const want = `
      - record: spillway:limit:oldest_letter_seconds
        expr: vector(15)
      - record: spillway:limit:stage_late_seconds
        expr: vector(1)
      - record: spillway:limit:letters_per_15m
        expr: vector(600)
        expr: increase(x[15000ms]) / 96 unless last_over_time(x[60000ms] offset 30000ms)
        for: 0ms
        keep_firing_for: 5000ms
          description: >- in 15 minutes, for 5m`
	got := Hurry(rules)
	testkit.Check(t, got == want, "got %s", got)
}

// Every alert of the rules has a fault in the story, and every rule and panel a query.
func TestComplete(t *testing.T) {
	shop := &shop{}
	shop.one = &instance{}
	s := &story{shop: shop}
	played := "SpillwayNewCause SpillwayLettersArriveFaster SpillwayOldestLetterTooOld SpillwayRedrivenFailAgain SpillwayCampaignStopped " +
		"SpillwayLettersQuarantined SpillwaySourceUnreachable SpillwayStoreAway SpillwayInstanceDown SpillwaySeriesAbsent" // in bug and tell
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

// The watch knows what fires, and what cleared.
func TestWatch(t *testing.T) {
	w := newWatch(io.Discard, nil)
	alert := func(name string) firing {
		return firing{Labels: map[string]string{"alertname": name}, Annotations: map[string]string{"summary": "it is so"}}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the time is over"))
	w.note([]firing{alert("a"), alert("b"), alert("b")}, nil)
	testkit.NoError(t, w.fire(t.Context(), "a", "b"))
	if err := w.fire(ctx, "a", "c"); err == nil || !strings.Contains(err.Error(), "[c]") {
		t.Errorf("c did not fire: %v", err)
	}
	w.note(nil, errors.New("no answer")) // says nothing about alerts
	if err := w.clear(ctx); err == nil || !strings.Contains(err.Error(), "[a b]") || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("a and b fire: %v", err)
	}
	w.note([]firing{alert("b")}, nil)
	testkit.Check(t, w.cleared["a"] && !w.cleared["b"], "cleared are %v", w.cleared)
	w.forget("a", "b")
	testkit.Check(t, !w.fired["a"] && w.fired["b"], "fired are %v", w.fired)
}

// The database comes back as it was. What is asked meanwhile is refused, in transactions too.
func TestGate(t *testing.T) {
	g, db, err := openGate("file:" + filepath.Join(t.TempDir(), "shop.db"))
	testkit.NoError(t, err)
	defer func() { _ = db.Close() }()
	testkit.Must(db.ExecContext(t.Context(), `CREATE TABLE t (id TEXT)`))
	tx := testkit.Must(db.BeginTx(t.Context(), nil))
	g.shut.Store(true)
	if _, err := tx.ExecContext(t.Context(), `INSERT INTO t VALUES ('a')`); err == nil {
		t.Error("a transaction goes on")
	}
	_ = tx.Rollback()
	if err := db.PingContext(t.Context()); err == nil || errors.Is(err, driver.ErrBadConn) {
		t.Errorf("a ping says %v, want a refused connection", err)
	}
	g.shut.Store(false)
	testkit.Must(db.ExecContext(t.Context(), `INSERT INTO t VALUES ('b')`))
}

// The shop runs: each topic is handled, and a page has the metrics of its instance until it is away.
func TestShop(t *testing.T) {
	s := testkit.Must(openShop(t.Context(), t.TempDir()))
	defer func() {
		err := s.close()
		testkit.Check(t, err == nil, "%v", err)
	}()
	s.faults.bug.Store(true)
	testkit.NoError(t, s.publish("orders", "customer", 3))
	testkit.Eventually(t, "three letters", func() bool {
		return scrape(t, s.one.page.address, `spillway_dead_letters_total{class="permanent",handler="billing",reason="no_customer",topic="orders"} 3`)
	})
	s.two.page.away.Store(true)
	testkit.Check(t, !scrape(t, s.two.page.address, "spillway_ok"), "a page that is away answers")
}

// What runs together ends with the first error, and what runs beside a call ends with the call.
func TestTogether(t *testing.T) {
	forever := func(ctx context.Context) error { <-ctx.Done(); return nil }
	wrong := errors.New("wrong")
	if err := together(t.Context(), forever, func(context.Context) error { return wrong }); !errors.Is(err, wrong) {
		t.Error(err)
	}
	testkit.NoError(t, beside(t.Context(), func(context.Context) error { return nil }, forever))
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, wrong)
	defer cancel()
	if err := beside(ctx, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, forever); !errors.Is(err, wrong) {
		t.Error(err)
	}
}

// scrape reports whether a page has a text. A page that is away has none.
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
