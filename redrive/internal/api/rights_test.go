package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/internal/api"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
)

// rights are the least right of each route.
var rights = map[string]operate.Right{
	"GET /openapi.json": operate.Nothing, "GET /": operate.LookWithoutPayload, "GET /health": operate.LookWithoutPayload,
	"GET /causes": operate.LookWithoutPayload, "GET /letters": operate.LookWithoutPayload, "GET /letters/count": operate.LookWithoutPayload,
	"GET /letters/{seq}": operate.LookWithoutPayload, "GET /letters/{seq}/events": operate.LookWithoutPayload,
	"GET /letters/{seq}/payload": operate.Look, "POST /letters/{seq}/payload": operate.Act, "POST /letters/{seq}/edit": operate.Act,
	"POST /plan": operate.Act, "GET /campaigns": operate.LookWithoutPayload, "POST /campaigns": operate.Act,
	"GET /campaigns/{id}": operate.LookWithoutPayload, "GET /campaigns/{id}/outcomes": operate.LookWithoutPayload,
	"GET /campaigns/{id}/stream": operate.LookWithoutPayload, "POST /campaigns/{id}/approve": operate.Approve,
	"POST /campaigns/{id}/pause": operate.Act, "POST /campaigns/{id}/resume": operate.Act, "POST /campaigns/{id}/rate": operate.Act,
	"POST /campaigns/{id}/cancel": operate.Act, "POST /discards": operate.Act, "GET /discards/{id}": operate.LookWithoutPayload,
	"POST /discards/{id}/undo": operate.Act, "POST /restores": operate.Act, "GET /restores/{id}": operate.LookWithoutPayload,
	"GET /sequences": operate.LookWithoutPayload, "GET /sequences/{seq}": operate.LookWithoutPayload,
	"POST /sequences/{seq}/release": operate.Act, "POST /sequences/{seq}/skip": operate.Act, "POST /sequences/{seq}/discard": operate.Act,
	"GET /audit": operate.LookWithoutPayload, "GET /audit.jsonl": operate.LookWithoutPayload, "GET /breakers": operate.LookWithoutPayload,
	"GET /outages": operate.LookWithoutPayload, "POST /outages/freeze": operate.Act, "POST /outages/release": operate.Act,
	"GET /policies": operate.LookWithoutPayload, "GET /policies/{name}": operate.LookWithoutPayload, "POST /policies/freeze": operate.Act,
	"POST /policies/thaw": operate.Act, "POST /policies/{name}/freeze": operate.Act, "POST /policies/{name}/thaw": operate.Act,
	"POST /policies/{name}/release": operate.Act, "POST /leases/break": operate.Act, "POST /erasures/plan": operate.Act,
	"POST /erasures": operate.Approve, "GET /erasures/{id}": operate.Look,
}

// Feature V13: each right is refused by each route that needs a greater one, and by no other. A new route needs a row.
func TestRights(t *testing.T) {
	d := newDesk(t)
	fixture.Publish(t, d.store, "orders.dlq", fixture.Several(3)...)
	seen := 0
	for _, row := range api.Table() {
		name := row.Method + " " + row.Pattern
		least, found := rights[name]
		if seen++; !found || least != operate.Right(row.Right) {
			t.Errorf("rights has no row for %s with the right to %v", name, operate.Right(row.Right))
		}
		path := strings.NewReplacer("{seq}", "1", "{name}", "x", "{id}", "x").Replace(row.Pattern)
		for right := operate.Nothing; right <= operate.Approve; right++ {
			ask := func() reply { return d.get(path, as(right)) }
			if row.Method == http.MethodPost {
				ask = func() reply { return d.post(path, "{}", as(right)) }
			}
			r := ask()
			if refused := r.StatusCode == http.StatusForbidden; refused != (right < least) || r.StatusCode >= 500 {
				t.Errorf("%s with the right to %v: status %d: %s", name, right, r.StatusCode, r.body)
			}
		}
	}
	if seen != len(rights) {
		t.Errorf("rights has %d rows, and there are %d routes", len(rights), seen)
	}
	d.get("/letters", with("Test-Role", "error")).want(t, http.StatusServiceUnavailable, "access-unknown")
	for _, path := range []string{"/nothing", "/letters/1/2/3", "/letters/%2e%2e", "2"} {
		d.get(path).want(t, http.StatusNotFound)
	}
	if r := d.post("/letters", "{}").want(t, http.StatusMethodNotAllowed, "takes GET"); r.Header.Get("Allow") != "GET" {
		t.Error(r.Header)
	}
	fixture.WantCount(t, d.store, fixture.Status("waiting"), 3)
	d.get("/").want(t, http.StatusOK, `"service":"shop"`, `"right":"approve"`, `"tables":{"campaign_events":1`)
	if all := fmt.Sprint(d.get("/campaigns").body); all != "{\"campaigns\":[]}\n" {
		t.Error(all)
	}
}
