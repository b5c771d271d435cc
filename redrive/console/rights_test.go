package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// rights are the least role of each route, and a path that it serves.
var rights = []struct {
	method, pattern, path string
	least                 Role
}{
	{http.MethodGet, "/", "/", LookWithoutPayload},
	{http.MethodGet, "/causes", "/causes", LookWithoutPayload},
	{http.MethodGet, "/letters", "/letters", LookWithoutPayload},
	{http.MethodGet, "/letters/{seq}", "/letters/1", LookWithoutPayload},
	{http.MethodGet, "/letters/{seq}/payload", "/letters/1/payload", Look},
	{http.MethodPost, "/letters/{seq}/payload", "/letters/1/payload", Operate},
	{http.MethodGet, "/letters/{seq}/json", "/letters/1/json", LookWithoutPayload},
	{http.MethodGet, "/campaigns", "/campaigns", LookWithoutPayload},
	{http.MethodGet, "/campaigns/{id}", "/campaigns/x", LookWithoutPayload},
	{http.MethodPost, "/campaigns/{id}/pause", "/campaigns/x/pause", Operate},
	{http.MethodPost, "/campaigns/{id}/resume", "/campaigns/x/resume", Operate},
	{http.MethodPost, "/campaigns/{id}/rate", "/campaigns/x/rate", Operate},
	{http.MethodPost, "/campaigns/{id}/cancel", "/campaigns/x/cancel", Operate},
	{http.MethodPost, "/campaigns/{id}/approve", "/campaigns/x/approve", Approve},
	{http.MethodGet, "/redrive", "/redrive?seq=1", Operate},
	{http.MethodPost, "/redrive", "/redrive", Operate},
	{http.MethodGet, "/letters/{seq}/edit", "/letters/1/edit", Operate},
	{http.MethodPost, "/letters/{seq}/edit", "/letters/1/edit", Operate},
	{http.MethodGet, "/discard", "/discard?seq=1", Operate},
	{http.MethodPost, "/discard", "/discard", Operate},
	{http.MethodGet, "/discards/{id}", "/discards/x", LookWithoutPayload},
	{http.MethodPost, "/discards/{id}/undo", "/discards/x/undo", Operate},
	{http.MethodGet, "/restore", "/restore?seq=1", Operate},
	{http.MethodPost, "/restore", "/restore", Operate},
	{http.MethodGet, "/restores/{id}", "/restores/x", LookWithoutPayload},
	{http.MethodGet, "/audit", "/audit", LookWithoutPayload},
	{http.MethodGet, "/audit/{file}", "/audit/audit.csv", LookWithoutPayload},
	{http.MethodGet, "/static/{file}", "/static/" + styleName, nothing},
}

// Feature V11: each role is refused by each route that needs a greater one, and by no other. A new route needs a row.
func TestRights(t *testing.T) {
	b := newBench(t)
	b.fill(1, 3)
	for _, r := range b.console.routes {
		found := false
		for _, row := range rights {
			found = found || row.method == r.method && row.pattern == r.pattern && row.least == r.right
		}
		if !found {
			t.Errorf("rights has no row for %v %v with the right to %v", r.method, r.pattern, r.right)
		}
	}
	for _, row := range rights {
		for role := nothing; role <= Approve; role++ {
			r := httptest.NewRequest(row.method, row.path, nil)
			if row.method == http.MethodPost {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			p := b.send(r, as(role))
			if refused := p.StatusCode == http.StatusForbidden; refused != (role < row.least) {
				t.Errorf("%v %v with the role %v: status %d", row.method, row.path, role, p.StatusCode)
			}
			if p.StatusCode >= 500 {
				t.Errorf("%v %v with the role %v: status %d: %v", row.method, row.path, role, p.StatusCode, p.body)
			}
		}
	}
}
