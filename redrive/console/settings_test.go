package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
)

// Feature V11: the page of a redrive begins with its settings, which are careful: a rate, and a canary for many
// letters.
func TestRedriveBeginsWithSettings(t *testing.T) {
	b := newBench(t)
	fixture.Publish(t, b.store, "orders.dlq", fixture.Several(30)...)
	p := b.get("/redrive?" + b.everything())
	p.want(t, http.StatusOK, "30 letters would be redriven")
	if rate, start, plan := strings.Index(p.body, `name="rate"`), strings.Index(p.body, `value="start"`), strings.Index(p.body, `id="plan-heading"`); rate < 0 || rate > start || start > plan {
		t.Errorf("the rate is at %d, the button at %d, the dry run at %d", rate, start, plan)
	}
	if many := p.fields(t); many.Get("rate") != "20" || many.Get("canary") != "10" {
		t.Errorf("30 letters begin with the rate %q and the canary %q", many.Get("rate"), many.Get("canary"))
	}
	if few := b.get("/redrive?seq=1&seq=2").fields(t); few.Get("rate") != "20" || few.Get("canary") != "" {
		t.Errorf("two letters begin with the rate %q and the canary %q", few.Get("rate"), few.Get("canary"))
	}
}
