package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V13, V14: programs freeze, thaw and release, each request once.
func TestPolicies(t *testing.T) {
	d := newDesk(t)
	for _, path := range []string{"/policies/x", "/policies"} {
		d.get(path).want(t, map[string]int{"/policies": 200, "/policies/x": 404}[path])
	}
	policy := func(name, reason string) campaigns.Policy {
		return campaigns.Policy{Name: name, Filter: letters.Filter{Reasons: []string{reason}}, Window: time.Hour, PerDay: 4, Max: 100, Rate: 5, Canary: 10}
	}
	testkit.Must(campaigns.New(t.Context(), d.store, campaigns.Config{Policies: []campaigns.Policy{policy("timeouts", "timeout"), policy("away", "unavailable")}}))
	testkit.Must(d.db.Exec(`INSERT INTO spillway_policies (service, name, cause, stopped, changed_at, changed_by, changed_why)
VALUES (?, 'timeouts', '9f3a12bc00', 1, 1, 'spillway', 'password=hunter2'), (?, 'timeouts', '9f3a7777', 1, 1, 'spillway', 'x')`, []byte("shop"), []byte("shop")))
	all := read[inside.Policies](t, d.get("/policies").want(t, http.StatusOK, "reason timeout"))
	testkit.Check(t, len(all.Policies) == 2 && len(all.Policies[1].Blocked) == 2, "%+v", all)
	why, once := fields{"reason": "INC-7"}, key(watermill.NewUUID())
	d.post("/policies/away/freeze", why, once).want(t, http.StatusOK, `{"policy":"away","state":"frozen","changed":true}`)
	d.post("/policies/away/thaw", why).want(t, http.StatusOK, `"changed":true`)
	d.post("/policies/away/freeze", why, once).want(t, http.StatusOK, `"changed":true`)
	d.post("/policies/timeouts/freeze", why, once).want(t, http.StatusUnprocessableEntity, operate.ProblemKeyReused)
	d.post("/policies/away/freeze", fields{"reason": "INC-8"}, once).want(t, http.StatusUnprocessableEntity, operate.ProblemKeyReused)
	one := read[inside.Policy](t, d.get("/policies/away").want(t, http.StatusOK))
	testkit.Check(t, one.Frozen == nil, "a request that came again froze it: %+v", one.Frozen)
	d.post("/policies/freeze", why).want(t, http.StatusOK, `{"policy":"","state":"frozen","changed":true}`)
	d.get("/policies").want(t, http.StatusOK, `"frozen":{`)
	d.post("/policies/thaw", why).want(t, http.StatusOK, `"changed":true`)
	d.post("/policies/thaw", why).want(t, http.StatusOK, `"changed":false`)
	release := func(cause string) fields { return fields{"reason": "INC-7: repaired", "cause": cause} }
	once = key(watermill.NewUUID())
	d.post("/policies/timeouts/release", release("9f3a")).want(t, http.StatusBadRequest, `"field":"cause"`, "several")
	for range 2 {
		d.post("/policies/timeouts/release", release("9f3a12"), once).want(t, http.StatusOK, `"cause":"9f3a12bc00","state":"released"`)
	}
	d.post("/policies/timeouts/release", release("9f3a77"), once).want(t, http.StatusUnprocessableEntity, operate.ProblemKeyReused)
	d.post("/policies/timeouts/release", release("9f3a12")).want(t, http.StatusNotFound)
	d.post("/policies/other/freeze", why).want(t, http.StatusNotFound)
	n := d.kinds()
	testkit.Check(t, n["policy"] == 5, "the record has %v", n)
}

// Feature V13: programs hold the messages of a handler in all instances, on record, each request once.
func TestFreezes(t *testing.T) {
	d := newDesk(t)
	body := fields{"handler": "billing", "reason": "INC-7 password=hunter2"}
	d.get("/outages").want(t, http.StatusConflict, operate.ProblemNoOutages)
	d.post("/outages/freeze", body).want(t, http.StatusConflict, operate.ProblemNoOutages)
	testkit.Must(breaker.NewStore(t.Context(), d.db, "shop"))
	once := key(watermill.NewUUID())
	d.post("/outages/freeze", body, once).want(t, http.StatusOK, `{"handler":"billing","state":"frozen","changed":true}`)
	r := d.get("/outages").want(t, http.StatusOK, `"handler":"billing"`, `"actor":"ann"`)
	testkit.Check(t, !strings.Contains(r.body, "hunter2"), "the reason is not masked: %s", r.body)
	end := fields{"handler": "billing", "reason": "INC-7: over"}
	d.post("/outages/release", end).want(t, http.StatusOK, `"changed":true`)
	d.post("/outages/release", end).want(t, http.StatusOK, `"changed":false`)
	d.post("/outages/freeze", body, once).want(t, http.StatusOK, `"changed":false`)
	d.get("/outages").want(t, http.StatusOK, `{"breakers":[]}`)
	d.post("/outages/freeze", fields{"all": true, "reason": body["reason"]}, once).want(t, http.StatusUnprocessableEntity, operate.ProblemKeyReused)
	for _, bad := range []fields{{"reason": "x"}, {"reason": "x", "all": true, "handler": "billing"}, {"reason": "x", "handler": strings.Repeat("x", 300)}} {
		d.post("/outages/freeze", bad).want(t, http.StatusBadRequest, `"field":"handler"`)
	}
	d.post("/outages/freeze", fields{"all": true, "reason": "INC-7"}).want(t, http.StatusOK, `{"handler":"","state":"frozen","changed":true}`)
	n := d.kinds()
	testkit.Check(t, n["freeze"] == 3, "the record has %v", n)
}

// Feature V13: programs take letters away from holders that are gone, once.
func TestLeases(t *testing.T) {
	d := newDesk(t).holding(fixture.Several(3)...)
	lease := func(seq int64) {
		taken := testkit.Must(fixture.Lease(t.Context(), d.store, letters.Filter{}, []int64{seq}, time.Hour))
		testkit.Require(t, len(taken) == 1, "%d are leased", len(taken))
	}
	lease(2)
	body, once := fields{"seqs": []int{1, 2}, "reason": "worker-3 was scrapped"}, key(watermill.NewUUID())
	d.post("/leases/break", body, once).want(t, http.StatusOK, `{"broken":[2]}`)
	lease(2)
	d.post("/leases/break", body, once).want(t, http.StatusOK, `{"broken":[2]}`)
	d.get("/letters?leased=1").want(t, http.StatusOK, `"seq":2`)
	d.post("/leases/break", fields{"seqs": []int{3}, "reason": "x"}).want(t, http.StatusOK, `{"broken":[]}`)
	d.post("/leases/break", fields{"seqs": []int{}, "reason": "x"}).want(t, http.StatusBadRequest)
	n := d.kinds()
	testkit.Check(t, n["lease_broken"] == 1, "the record has %v", n)
}

// Features D14, V13: a program plans an erasure, erases, and goes on under one key. No answer has the value.
func TestErasures(t *testing.T) {
	d := newDesk(t)
	whose := func(l *poison.Letter) { l.Original.Metadata.Set("customer", "person-4711") }
	fixture.Publish(t, d.store, "orders.dlq", fixture.Letter("a", "{}", whose), fixture.Letter("b", "{}", whose), fixture.Letter("c", "{}"))
	held := testkit.Must(fixture.Take(t.Context(), d.store, letters.Filter{IDs: []string{"b"}}, time.Hour, 1))
	who := fields{"metadata": fields{"customer": "person-4711"}}
	planned := read[operate.ErasedData](t, d.post("/erasures/plan", who).want(t, http.StatusOK))
	testkit.Check(t, planned.Letters == 1 && planned.LettersInHand == 1 && planned.ID == "", "%+v", planned)
	who["reason"] = "for person-4711"
	d.post("/erasures", who).want(t, http.StatusBadRequest, "has a value that is to be erased")
	who["reason"] = "request 17"
	fixture.WantCount(t, d.store, fixture.Status(letters.StatusErased), 0)
	once := key(watermill.NewUUID())
	done := read[operate.ErasedData](t, d.post("/erasures", who, once).want(t, http.StatusOK))
	testkit.Check(t, done.Letters == 1 && done.LettersInHand == 1 && !done.Complete, "%+v", done)
	at := "/erasures/" + done.ID
	d.get(at).want(t, http.StatusOK, `"complete":false`, "left 1 in hand", done.Selector)
	testkit.NoError(t, fixture.Release(t.Context(), d.store, held...))
	done = read[operate.ErasedData](t, d.post("/erasures", who, once).want(t, http.StatusOK))
	testkit.Check(t, done.Letters == 1 && done.Complete, "%+v", done)
	n := d.kinds()["erasure"]
	again := read[operate.ErasedData](t, d.post("/erasures", who, once).want(t, http.StatusOK))
	testkit.Check(t, again.Complete && again.Letters == 0 && d.kinds()["erasure"] == n, "sent again: %+v", again)
	d.post("/erasures", fields{"ids": []string{"c"}, "reason": "request 17"}, once).want(t, http.StatusUnprocessableEntity, operate.ProblemKeyReused)
	d.get(at).want(t, http.StatusOK, `"complete":true`, `"by":"ann"`)
	d.get("/erasures/campaign-1").want(t, http.StatusNotFound)
	for _, bad := range []fields{{"reason": "x"}, {"reason": "x", "ids": []string{"a"}, "metadata": fields{"a": "b"}}, {"reason": "x", "ids": []string{""}}, {"reason": "x", "metadata": fields{"a": ""}}} {
		d.post("/erasures", bad).want(t, http.StatusBadRequest)
	}
	fixture.WantCount(t, d.store, fixture.Status(letters.StatusErased), 2)
	for _, path := range []string{at, "/audit", "/letters?status=all", "/letters/1", "/letters/2"} {
		r := d.get(path).want(t, http.StatusOK)
		testkit.Check(t, !strings.Contains(r.body, "4711"), "%s has the value: %s", path, r.body)
	}
}
