package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/api"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature V13: a list comes page by page, each letter once, while letters arrive, in both orders.
func TestPages(t *testing.T) {
	for _, order := range []string{"oldest", "newest"} {
		d := newDesk(t).holding(fixture.Several(25)...)
		var seqs []int64
		next := "/letters?limit=10&topic=orders&order=" + order
		for next != "" {
			page := read[operate.LettersData](t, d.get(next).want(t, http.StatusOK))
			for _, l := range page.Letters {
				seqs = append(seqs, l.Seq)
			}
			if next = ""; page.Next != "" {
				next = "/letters?limit=10&topic=orders&order=" + order + "&after=" + page.Next
			}
			fixture.Publish(t, d.store, "orders.dlq", fixture.Letter(fmt.Sprint("late", len(seqs)), "{}"))
		}
		if order == "newest" {
			slices.Reverse(seqs)
		}
		testkit.Check(t, slices.IsSorted(seqs) && len(slices.Compact(seqs)) == len(seqs) && len(seqs) >= 25,
			"%s: %v", order, seqs)
	}
}

// Feature V13: what has not changed does not come again.
func TestTags(t *testing.T) {
	d := newDesk(t).holding(fixture.Several(3)...)
	for _, path := range []string{"/", "", "/health", "/causes", "/letters", "/letters/count", "/letters/1", "/campaigns",
		"/sequences", "/audit", "/openapi.json"} {
		tag := d.get(path).want(t, http.StatusOK).Header.Get("ETag")
		r := d.get(path, with("If-None-Match", `"x", `+tag)).want(t, http.StatusNotModified)
		testkit.Check(t, r.body == "" && strings.HasPrefix(tag, `W/"`), "%s: %q, %q", path, tag, r.body)
		head := d.send(newRequest(http.MethodHead, path)).want(t, http.StatusOK)
		testkit.Check(t, head.body == "" && head.Header.Get("ETag") == tag, "HEAD %s: %q", path, head.body)
	}
	packed := d.get("/openapi.json", with("Accept-Encoding", "gzip"))
	plain := d.get("/openapi.json")
	testkit.Check(t, packed.Header.Get("Content-Encoding") == "gzip" && 4*len(packed.body) <= len(plain.body),
		"packed it has %d bytes, and %d without", len(packed.body), len(plain.body))
	tag := d.get("/letters").Header.Get("ETag")
	fixture.Publish(t, d.store, "orders.dlq", fixture.Letter("more", "{}"))
	d.get("/letters", with("If-None-Match", tag)).want(t, http.StatusOK)
}

// Feature V13: a filter that is misspelt, or has a value that cannot be, chooses nothing. The problem names the field.
func TestQueries(t *testing.T) {
	d := newDesk(t).holding(fixture.Several(3)...)
	for query, field := range map[string]string{
		"tpoic=x": "tpoic", "status=lost": "status", "class=odd": "class", "since=yesterday": "since", "limit=0": "limit", "limit=1001": "limit",
		"limit=x": "limit", "after=x": "after", "after=0": "after", "order=up": "order", "metadata=x": "metadata",
		"text=a&text=b": "text", "leased=no": "leased", "topic=%ff": "topic",
	} {
		p := read[operate.Problem](t, d.get("/letters?"+query).want(t, http.StatusBadRequest))
		testkit.Check(t, len(p.Errors) == 1 && p.Errors[0].Field == field && p.Errors[0].Detail != "",
			"%s: %+v", query, p)
	}
	d.get("/letters?"+strings.Repeat("id=x&", 20_000)).want(t, http.StatusBadRequest, "may have 65536")
	d.get("/letters?%zz").want(t, http.StatusBadRequest)
	d.get("/audit?kind=odd").want(t, http.StatusBadRequest, `"field":"kind"`)
	d.get("/campaigns?state=odd").want(t, http.StatusBadRequest, `"field":"state"`)
	d.get("/letters?payload=secret", as(operate.Look)).want(t, http.StatusForbidden)
	d.get("/letters?text=secret", as(operate.LookWithoutPayload)).want(t, http.StatusForbidden)
	d.get("/letters/9").want(t, http.StatusNotFound)
	d.get("/letters/x").want(t, http.StatusNotFound)
	d.get("/campaigns/9f3a12bc-0000-4000-8000-000000000001").want(t, http.StatusNotFound)
}

func newRequest(method, path string) *http.Request {
	r, _ := http.NewRequest(method, api.Prefix+path, http.NoBody)
	return r
}

// Feature V13: each right is refused by each route that needs a greater one, and by no other. TestDocument keeps them.
func TestRights(t *testing.T) {
	d := newDesk(t).holding(fixture.Several(3)...)
	for _, row := range api.Table() {
		name, least := row.Method+" "+row.Pattern, row.Right
		path := strings.NewReplacer("{seq}", "1", "{name}", "x", "{id}", "x", "{cause}", "9f3a").Replace(row.Pattern)
		for right := operate.Nothing; right <= operate.Approve; right++ {
			ask := func() reply { return d.get(path, as(right)) }
			if row.Method == http.MethodPost {
				ask = func() reply { return d.post(path, "{}", as(right)) }
			}
			r := ask()
			refused := r.StatusCode == http.StatusForbidden
			testkit.Check(t, refused == (right < least) && r.StatusCode < 500,
				"%s with the right to %v: status %d: %s", name, right, r.StatusCode, r.body)
		}
	}
	d.get("/letters", with("Test-Role", "error")).want(t, http.StatusServiceUnavailable, "access-unknown")
	for _, path := range []string{"/nothing", "/letters/1/2/3", "/letters/%2e%2e", "2"} {
		d.get(path).want(t, http.StatusNotFound)
	}
	r := d.post("/letters", "{}").want(t, http.StatusMethodNotAllowed, "takes GET")
	testkit.Check(t, r.Header.Get("Allow") == "GET", "%v", r.Header)
	fixture.WantCount(t, d.store, fixture.Status("waiting"), 3)
	d.get("/").want(t, http.StatusOK, `"service":"shop"`, `"right":"approve"`, `"tables":{"campaign_events":1`)
	all := fmt.Sprint(d.get("/campaigns").body)
	testkit.Check(t, all == "{\"campaigns\":[]}\n", "%v", all)
}

// Feature V13: an address that is there for one method says so, also where an address with a name in it would match.
func TestMethods(t *testing.T) {
	d := newDesk(t)
	for path, allowed := range map[string]string{"/policies/freeze": "POST", "/policies/thaw": "POST",
		"/erasures/plan": "POST", "/letters": "GET", "/letters/count": "GET",
		"/campaigns": "GET, POST", "/letters/1/payload": "GET, POST"} {
		r := d.send(httptest.NewRequest(http.MethodDelete, api.Prefix+path, nil)).want(t, http.StatusMethodNotAllowed)
		testkit.Check(t, r.Header.Get("Allow") == allowed, "%s allows %q, want %q", path, r.Header.Get("Allow"), allowed)
	}
	r := d.get("/policies/freeze").want(t, http.StatusMethodNotAllowed)
	testkit.Check(t, r.Header.Get("Allow") == "POST", "%q", r.Header.Get("Allow"))
}
