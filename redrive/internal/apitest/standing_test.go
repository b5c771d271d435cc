package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker/sqlshare"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V13, V14: a request that comes again does not do again what was undone meanwhile. Its key is of no other.
func TestKeys_undoneMeanwhile(t *testing.T) {
	d := newDesk(t).holding(fixture.Several(3)...)
	testkit.Must(campaigns.New(t.Context(), d.store, campaigns.Config{Policies: []campaigns.Policy{{Name: "away",
		Filter: letters.Filter{Reasons: []string{"unavailable"}}, Window: time.Hour, PerDay: 4, Max: 100, Rate: 5, Canary: 10}}}))
	testkit.Must(d.db.Exec(`INSERT INTO spillway_policies (service, name, cause, stopped, changed_at, changed_by, changed_why)
VALUES (?, 'away', '9f3a12bc00', 1, 1, 'spillway', 'x')`, []byte("shop")))
	d.post("/outages/freeze", fields{"reason": "x", "all": true}).want(t, http.StatusConflict, operate.ProblemNoOutages)
	testkit.Must(sqlshare.NewStore(t.Context(), d.db, "shop"))
	undo := func(path string, body fields) func() {
		return func() { d.post(path, body).want(t, http.StatusOK, `"changed":true`) }
	}
	why, billing := fields{"reason": "INC-7"}, fields{"handler": "billing", "reason": "INC-7"}
	for _, row := range []struct {
		path  string
		body  fields
		undo  func()
		other fields // of the request that has the key of the first
	}{
		{"/policies/away/freeze", why, undo("/policies/away/thaw", why), fields{"reason": "INC-8"}},
		{"/policies/away/release", fields{"reason": "INC-7", "cause": "9f3a12"}, func() {}, fields{"reason": "INC-7", "cause": "9f3a77"}},
		{"/outages/freeze", billing, undo("/outages/release", billing), fields{"all": true, "reason": "INC-7"}},
	} {
		once := key(watermill.NewUUID())
		d.post(row.path, row.body, once).want(t, http.StatusOK)
		row.undo()
		before := fmt.Sprint(d.kinds())
		d.post(row.path, row.body, once).want(t, http.StatusOK)
		d.post(row.path, row.other, once).want(t, http.StatusUnprocessableEntity, operate.ProblemKeyReused)
		testkit.Equal(t, row.path+", on record", fmt.Sprint(d.kinds()), before)
	}
	one := read[inside.Policies](t, d.get("/policies").want(t, http.StatusOK)).Policies[0]
	testkit.Check(t, one.Frozen == nil, "a request that came again froze it: %+v", one.Frozen)
	d.get("/outages").want(t, http.StatusOK, `{"breakers":[]}`)
	for _, bad := range []fields{{"reason": "x"}, {"reason": "x", "all": true, "handler": "billing"}, {"reason": "x", "handler": strings.Repeat("x", 300)}} {
		d.post("/outages/freeze", bad).want(t, http.StatusBadRequest, `"field":"handler"`)
	}
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
	at := "/audit?redrive-id=" + done.ID
	d.get(at).want(t, http.StatusOK, "left 1 in hand", done.Selector)
	testkit.NoError(t, fixture.Release(t.Context(), d.store, held...))
	done = read[operate.ErasedData](t, d.post("/erasures", who, once).want(t, http.StatusOK))
	testkit.Check(t, done.Letters == 1 && done.Complete, "%+v", done)
	n := d.kinds()["erasure"]
	again := read[operate.ErasedData](t, d.post("/erasures", who, once).want(t, http.StatusOK))
	testkit.Check(t, again.Complete && again.Letters == 0 && d.kinds()["erasure"] == n, "sent again: %+v", again)
	d.post("/erasures", fields{"ids": []string{"c"}, "reason": "request 17"}, once).want(t, http.StatusUnprocessableEntity, operate.ProblemKeyReused)
	d.get(at).want(t, http.StatusOK, "left 0 in hand", `"by":"ann"`)
	for _, bad := range []fields{{"reason": "x"}, {"reason": "x", "ids": []string{"a"}, "metadata": fields{"a": "b"}}, {"reason": "x", "ids": []string{""}}, {"reason": "x", "metadata": fields{"a": ""}}} {
		d.post("/erasures", bad).want(t, http.StatusBadRequest)
	}
	fixture.WantCount(t, d.store, fixture.Status(letters.StatusErased), 2)
	for _, path := range []string{"/audit", "/letters?status=all", "/letters/1", "/letters/2"} {
		r := d.get(path).want(t, http.StatusOK)
		testkit.Check(t, !strings.Contains(r.body, "4711"), "%s has the value: %s", path, r.body)
	}
}
