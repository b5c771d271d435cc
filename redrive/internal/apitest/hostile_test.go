package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/api"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/redrive/console"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// bodies are valid bodies of all routes that take one.
var bodies = map[string]fields{
	"/letters/1/payload": {"reason": "x"}, "/plan": {"seqs": []int{1}}, "/campaigns": {"seqs": []int{1}, "reason": "x"},
	"/letters/1/edit": {"reason": "x", "version": "x", "edit": fields{"unset": []string{"a"}}}, "/discards": {"seqs": []int{1}, "reason": "x"},
	"/restores": {"seqs": []int{1}, "reason": "x"}, "/campaigns/x/approve": {"reason": "x"},
	"/campaigns/x/pause": {"reason": "x"}, "/campaigns/x/resume": {"reason": "x"}, "/campaigns/x/rate": {"reason": "x", "rate": 1},
	"/campaigns/x/cancel": {"reason": "x"}, "/sequences/1/release": {"reason": "x"}, "/sequences/1/skip": {"reason": "x"},
	"/sequences/1/discard": {"reason": "x", "all": true}, "/policies/freeze": {"reason": "x"}, "/policies/thaw": {"reason": "x"},
	"/policies/x/freeze": {"reason": "x"}, "/policies/x/thaw": {"reason": "x"}, "/policies/x/release": {"reason": "x", "cause": "9f3a"},
	"/causes/9f3a":    {"reason": "x", "note": "a note"},
	"/outages/freeze": {"reason": "x", "handler": "billing"}, "/outages/release": {"reason": "x", "handler": "billing"},
	"/erasures": {"reason": "x", "ids": []string{"id-1"}}, "/erasures/plan": {"ids": []string{"id-1"}},
}

// Feature V13: a body that is no JSON, of another type, misspelt or too large changes nothing, and is told why.
func TestBodies(t *testing.T) {
	d := newDesk(t).holding(fixture.Several(3)...)
	for _, row := range api.Table() {
		if row.Method != http.MethodPost {
			continue
		}
		path := strings.NewReplacer("{seq}", "1", "{name}", "x", "{id}", "x", "{cause}", "9f3a").Replace(row.Pattern)
		good, found := bodies[path]
		testkit.Check(t, found, "bodies has no row for %s", path)
		text := string(testkit.Must(json.Marshal(good)))
		for _, bad := range []struct {
			what, body string
			status     int
			says       string
		}{
			{"nothing", "", 400, "is empty"}, {"a cut body", text[:len(text)-1], 400, "no JSON"}, {"another format", "reason=x", 400, "no JSON"},
			{"a list", "[" + text + "]", 400, "must be of the type"}, {"two values", text + text, 400, "more than one value"},
			{"another field", `{"raeson":"x",` + text[1:], 400, `"field":"raeson"`}, {"another type", strings.Replace(text, `"x"`, "7", 1), 400, ""},
			{"a large body", `{"reason":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "at most"}, {"no reason", strings.Replace(text, `"x"`, `""`, 1), 400, ""},
			{"a long reason", strings.Replace(text, `"x"`, `"`+strings.Repeat("x", 1025)+`"`, 1), 400, ""},
			{"a NUL", strings.Replace(text, `"x"`, `"\u0000"`, 1), 400, ""}, {"deep", strings.Repeat(`{"filter":`, 20_000), 400, ""},
		} {
			if (path == "/plan" || path == "/erasures/plan") && !strings.Contains("nothing a cut body another format a list two values another field", bad.what) {
				continue // it needs no reason
			}
			r := d.post(path, bad.body)
			if r.want(t, r.StatusCode, bad.says); r.StatusCode != bad.status && !(bad.status == 400 && r.StatusCode == 413) {
				t.Errorf("%s: %s: status %d: %s", path, bad.what, r.StatusCode, r.body)
			}
		}
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "multipart/form-data"} {
			d.post(path, text, with("Content-Type", kind)).want(t, http.StatusUnsupportedMediaType, operate.ProblemMediaType)
		}
		for _, from := range []struct{ header, value string }{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
			d.post(path, text, with(from.header, from.value)).want(t, http.StatusForbidden, operate.ProblemCrossSite)
		}
	}
	for field, value := range map[string]any{"id": "9f3a12bc-0000-4000-8000-000000000001", "by": "eve", "rate": -1, "max": -1, "canary": -1, "stop_at": 2,
		"concurrency": 10_000, "to": "elsewhere", "not_before": "soon", "edit": fields{"patch": "x"}, "filter": fields{"topics": []string{"orders"}},
		"seqs": []int{0}, "canary_wait": "-1s", "resume_after": 60, "seen": "x"} {
		body := fields{"seqs": []int{1}, "reason": "x"}
		body[field] = value
		d.post("/campaigns", body).want(t, http.StatusBadRequest)
	}
	fixture.WantCount(t, d.store, fixture.Status(letters.StatusWaiting), 3)
	testkit.Check(t, len(d.kinds()) == 0, "the record has %v", d.kinds())
}

// Feature V13: what a request carries stays a value: in a query, a body and an address.
func TestInjection(t *testing.T) {
	d := newDesk(t).holding(fixture.Several(3)...)
	hostile := []string{`' OR '1'='1`, `"; DROP TABLE spillway_letters; --`, `%`, `\`, "x\x00y", "\xff\xfe", "<script>alert(1)</script>", "a\r\nSet-Cookie: x=y",
		"../../etc/passwd", strings.Repeat("W", 9_000)}
	lists := []string{"topics", "not_topics", "dead_letter_topics", "handlers", "reasons", "types", "causes", "redrive_ids", "ids", "seal_keys"}
	for _, text := range hostile {
		for _, f := range operate.FilterFields {
			r := d.get("/letters?" + url.Values{f.Name: {text}}.Encode())
			testkit.Check(t, (r.StatusCode != http.StatusOK || f.Name == "not-topic" || len(read[operate.LettersData](t, r).Letters) == 0) &&
				r.StatusCode < 500, "%s=%q: status %d: %s", f.Name, text, r.StatusCode, r.body)
			testkit.Check(t, r.Header.Get("Set-Cookie") == "" && r.Header.Get("X-Content-Type-Options") == "nosniff",
				"%v", r.Header)
		}
		for _, list := range lists {
			r := d.post("/plan", fields{"filter": fields{list: []string{text}}})
			testkit.Check(t, (r.StatusCode != http.StatusOK || list == "not_topics" || read[operate.PlanData](t, r).Letters <= 0) &&
				r.StatusCode < 500, "%s=%q: status %d: %s", list, text, r.StatusCode, r.body)
		}
		for _, path := range []string{"/letters/", "/campaigns/", "/discards/", "/sequences/"} {
			r := d.get(path + url.PathEscape(text))
			testkit.Check(t, r.StatusCode == http.StatusNotFound, "%s%q: status %d", path, text, r.StatusCode)
		}
	}
	fixture.WantCount(t, d.store, fixture.Status(letters.StatusWaiting), 3)
}

// Feature V13: while the database is unavailable each route says so, and when to ask again. Details are for who may
// act.
func TestUnavailable(t *testing.T) {
	d := newDesk(t)
	testkit.NoError(t, d.db.Close())
	for _, row := range api.Table() {
		path := strings.NewReplacer("{seq}", "1", "{name}", "x", "{cause}", "9f3a", "{id}", "9f3a12bc-0000-4000-8000-000000000001").Replace(row.Pattern)
		var r reply
		switch {
		case row.Right == 0:
			continue
		case row.Method == http.MethodPost:
			body := bodies[strings.NewReplacer("{seq}", "1", "{name}", "x", "{id}", "x", "{cause}", "9f3a").Replace(row.Pattern)]
			r = d.post(path, body).want(t, http.StatusServiceUnavailable, operate.ProblemUnavailable, "is closed")
		default:
			r = d.get(path).want(t, http.StatusServiceUnavailable, operate.ProblemUnavailable, "is closed")
			low := d.get(path, as(operate.Look))
			testkit.Check(t, !strings.Contains(low.body, "is closed"), "%s: %s", path, low.body)
		}
		testkit.Check(t, r.Header.Get("Retry-After") == "5", "%s: %v", path, r.Header)
	}
}

// Feature V13: a time that no clock has hides no key, and an answer that JSON does not have is no fault of the
// database.
func TestTimes(t *testing.T) {
	mad := time.UnixMilli(time.Now().UnixMicro()) // in the wrong unit: the year 57,000
	d := newDesk(t, func(c *console.Config) {
		c.Breakers = func() []circuit.Status { return []circuit.Status{{Handler: "billing", Since: mad}} }
	})
	store := testkit.Must(sequence.NewStore(t.Context(), d.db, "shop"))
	msg := message.NewMessage("order-1", nil)
	testkit.NoError(t, store.Park(t.Context(), parked.Source{Group: "billing", Topic: "orders"}, &sequence.Row{
		Lane: parked.LaneOf([]byte("customer-1")), Fingerprint: sequence.FingerprintOf(msg), SentAt: mad,
		Key: keytable.Key{Consumer: "shop/billing", ID: msg.UUID}, Msg: msg}, time.Hour))
	d.get("/sequences").want(t, http.StatusOK, "order-1")
	d.get("/sequences/1").want(t, http.StatusOK, "order-1")
	d.get("/outages").want(t, http.StatusInternalServerError, operate.ProblemFailed, "JSON does not have")
}
