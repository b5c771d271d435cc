package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/api"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker/sqlshare"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

type fields = map[string]any

func key(k string) func(*http.Request) { return with("Idempotency-Key", k) }

// kinds counts the entries of the record that persons made, by kind.
func (d *desk) kinds() map[string]int {
	d.t.Helper()
	n := map[string]int{}
	for _, e := range read[operate.EventsData](d.t, d.get("/audit?limit=1000").want(d.t, http.StatusOK)).Events {
		n[e.Kind]++
	}
	return n
}

// Feature V13: a campaign is planned, started, steered and read by a program, under the name of its person.
func TestCampaign(t *testing.T) {
	d := newDesk(t).holding(fixture.Several(12)...)
	chosen := fields{"filter": fields{"topics": []string{"orders"}, "max_seq": 10}, "rate": 5}
	plan := read[operate.PlanData](t, d.post("/plan", chosen).want(t, http.StatusOK, `"takes":"2s"`, `{"up_to":"0s"`))
	testkit.Check(t, plan.Letters == 10 && !plan.Part && len(plan.Sample) != 0, "%+v", plan)
	chosen["reason"], chosen["seen"], chosen["approval"], chosen["canary_wait"] = "INC-7", 9, true, "90m"
	d.post("/campaigns", chosen).want(t, http.StatusConflict, "10 letters match now", operate.ProblemChanged)
	chosen["seen"] = 10
	r := d.post("/campaigns", chosen).want(t, http.StatusCreated, `"canary_wait":"1h30m"`)
	c := read[operate.CampaignData](t, r)
	testkit.Require(t, c.Request.By == "ann" && c.Selected == 10 && c.State == campaigns.Approval &&
		r.Header.Get("Location") == "./campaigns/"+c.ID, "%s: %+v", r.Header.Get("Location"), c)
	at := "/campaigns/" + c.ID
	why := fields{"reason": "INC-7: a look"}
	d.post(at+"/approve", why).want(t, http.StatusConflict, "a second person")
	d.post(at+"/approve", why, with("Test-Name", "bob")).want(t, http.StatusOK, `"running"`, `"approved_by":"bob"`)
	d.post(at+"/rate", fields{"reason": "slower"}).want(t, http.StatusBadRequest, `"field":"rate"`)
	d.post(at+"/rate", fields{"reason": "slower", "rate": -1}).want(t, http.StatusBadRequest, `"field":"rate"`)
	d.post(at+"/cancel", why).want(t, http.StatusOK, `"cancelled"`)
	list := read[operate.CampaignsData](t, d.get("/campaigns?state=cancelled&limit=1"))
	testkit.Check(t, len(list.Campaigns) == 1 && list.Next != "", "%+v", list)
	list = read[operate.CampaignsData](t, d.get("/campaigns?state=cancelled&limit=1&after="+url.QueryEscape(list.Next)))
	testkit.Check(t, len(list.Campaigns) == 0, "%+v", list)
}

// Feature V13: letters are discarded and restored by programs, those up to the last that was seen.
func TestDecisions(t *testing.T) {
	d := newDesk(t).holding(fixture.Several(5)...)
	n := read[operate.CountData](t, d.get("/letters/count?topic=orders").want(t, http.StatusOK))
	fixture.Publish(t, d.store, "orders.dlq", fixture.Letter("late", "{}"))
	all := fields{"filter": fields{"topics": []string{"orders"}, "max_seq": n.MaxSeq}, "seen": n.Count, "reason": "INC-7"}
	done := read[operate.DecidedData](t, d.post("/discards", all).want(t, http.StatusOK))
	testkit.Check(t, *done.Letters == 5 && done.By == "ann" && done.Reason == "INC-7" && done.Complete, "%+v", done)
	fixture.WantCount(t, d.store, fixture.Status(letters.StatusWaiting), 1)
	d.post("/discards", all).want(t, http.StatusConflict, operate.ProblemNoLetters)
	d.post("/restores", fields{"seqs": []int{1}, "reason": "a mistake"}).want(t, http.StatusOK, `"letters":1`)
	of := fields{"filter": fields{"redrive_ids": []string{done.ID}, "max_seq": n.MaxSeq}, "reason": "all of it"}
	d.post("/restores", of).want(t, http.StatusOK, `"letters":4`, `"id":"restore-`)
	fixture.WantCount(t, d.store, fixture.Status(letters.StatusWaiting), 6)
	delete(all["filter"].(fields), "max_seq")
	d.post("/discards", all).want(t, http.StatusBadRequest, "filter.max_seq")
	d.post("/discards", fields{"reason": "all"}).want(t, http.StatusBadRequest, "filter is missing")
	d.post("/restores", fields{"filter": fields{"max_seq": 9, "statuses": []string{"waiting"}}, "reason": "x"}).want(t, http.StatusBadRequest,
		"filter.statuses")
	fixture.WantCount(t, d.store, fixture.Status(letters.StatusWaiting), 6)
}

// Feature V13: one letter is redriven with changes, if it is as the person saw it.
func TestEdit(t *testing.T) {
	d := newDesk(t).holding(fixture.Letter("a", `{"currency":"EU"}`))
	l := read[operate.WholeData](t, d.get("/letters/1").want(t, http.StatusOK))
	body := fields{"version": "x", "reason": "INC-7", "edit": fields{"merge": fields{"currency": "EUR"}, "set": fields{"tenant": "red"}}}
	d.post("/letters/1/edit", body).want(t, http.StatusConflict, "has changed")
	body["version"] = l.Version
	d.post("/plan", fields{"seqs": []int{1}, "edit": body["edit"]}).want(t, http.StatusOK, `"edited":{`)
	once := key(watermill.NewUUID())
	for range 2 {
		c := read[operate.CampaignData](t, d.post("/letters/1/edit", body, once).want(t, http.StatusCreated))
		testkit.Check(t, c.Selected == 1 && string(c.Request.Edit.Merge) == `{"currency":"EUR"}`, "%+v", c)
	}
	d.post("/letters/1/edit", body).want(t, http.StatusConflict, operate.ProblemNoLetters, "in_campaign")
}

// Feature V13: a request that two instances get twice takes effect once. Another one with its key takes none.
func TestKeys(t *testing.T) { fixture.OnEach(t, sendTwice) }

func sendTwice(t *testing.T, on fixture.Database) {
	db := on.Create(t)
	d := deskOn(t, db())
	other := deskOn(t, db())
	fixture.Publish(t, d.store, "orders.dlq", fixture.Several(9)...)
	started := read[operate.CampaignData](t, d.post("/campaigns", fields{"seqs": []int{9}, "reason": "INC-7", "rate": 1}).want(t, http.StatusCreated))
	at := "/campaigns/" + started.ID
	for _, test := range []struct {
		path  string
		body  fields
		other fields // of the request that has the key of the first
	}{
		{"/campaigns", fields{"seqs": []int{1, 2}, "reason": "INC-7"}, fields{"seqs": []int{1, 2}, "reason": "INC-7", "rate": 9}},
		{"/letters/3/payload", fields{"reason": "INC-7"}, fields{"reason": "INC-8"}},
		{"/discards", fields{"seqs": []int{4, 5}, "reason": "INC-7"}, fields{"seqs": []int{4, 5}, "reason": "INC-8"}},
		{"/restores", fields{"seqs": []int{4, 5}, "reason": "INC-7"}, fields{"seqs": []int{4, 5}, "reason": "INC-8"}},
		{at + "/rate", fields{"rate": 3, "reason": "INC-7"}, fields{"rate": 4, "reason": "INC-7"}},
		{at + "/pause", fields{"reason": "INC-7"}, fields{"reason": "INC-8"}},
		{at + "/resume", fields{"reason": "INC-7"}, fields{"reason": "INC-8"}},
		{at + "/cancel", fields{"reason": "INC-7"}, fields{"reason": "INC-8"}},
	} {
		before, once := d.kinds(), key(`"`+strings.ToUpper(watermill.NewUUID())+`"`)
		var answers [2]reply
		var both sync.WaitGroup
		for i, one := range []*desk{d, other} {
			both.Go(func() { answers[i] = one.post(test.path, test.body, once) })
		}
		both.Wait()
		again := other.post(test.path, test.body, once)
		for _, r := range []reply{answers[0], answers[1], again} {
			testkit.Check(t, (r.StatusCode == http.StatusOK || r.StatusCode == http.StatusCreated),
				"%s: status %d: %s", test.path, r.StatusCode, r.body)
		}
		d.post(test.path, test.other, once).want(t, http.StatusUnprocessableEntity, operate.ProblemKeyReused)
		d.post(test.path, test.body, once, with("Test-Name", "bob")).want(t, http.StatusUnprocessableEntity, operate.ProblemKeyReused)
		wanted := map[string]int{"/campaigns": 2, "/letters/3/payload": 1, "/discards": 2, "/restores": 2}[test.path]
		made := 0
		for kind, n := range d.kinds() {
			made += n - before[kind]
		}
		shownTwice := test.path == "/letters/3/payload" && made == 2 // both sent the bytes
		testkit.Check(t, (made == wanted || shownTwice),
			"%s: %d entries of the record are new, want %d", test.path, made, wanted)
	}
	events := read[operate.CampaignRecord](t, d.get(at).want(t, http.StatusOK)).Events
	testkit.Check(t, len(events) == 6 && strings.HasPrefix(events[2].Details, "3 request "),
		"the record of the campaign is %+v", events)
	all := read[operate.CampaignsData](t, d.get("/campaigns"))
	testkit.Check(t, len(all.Campaigns) == 2, "%d campaigns", len(all.Campaigns))
	for _, row := range api.Table() {
		if !row.Keyed {
			continue
		}
		path := strings.NewReplacer("{seq}", "1", "{name}", "x", "{id}", "x", "{cause}", "9f3a").Replace(row.Pattern)
		d.post(path, "{}", func(r *http.Request) { r.Header.Del("Idempotency-Key") }).want(t, http.StatusBadRequest, operate.ProblemKeyMissing)
		for _, k := range []string{"x", started.ID + "0", "8e03978e-40d5-43e8-bc93-6894a57f932%", strings.Repeat("a", 36)} {
			d.post(path, "{}", key(k)).want(t, http.StatusBadRequest, `"field":"Idempotency-Key"`)
		}
	}
}

// Feature V13: a person decides about the first message of a key once, however often the request comes.
func TestSequences(t *testing.T) {
	db := fixture.SQLite.Create(t)
	d := deskOn(t, db())
	other := deskOn(t, db())
	fixture.Park(t, d.db, "shop")
	all := read[operate.SequencesData](t, d.get("/sequences?limit=2").want(t, http.StatusOK, "customer-1", "customer-7"))
	testkit.Check(t, len(all.Sequences) == 2 && all.Cut, "%+v", all)
	d.get("/sequences/4").want(t, http.StatusOK, `"waiting":[{"seq":3,`, "order-3")
	for _, path := range []string{"/sequences", "/sequences/3"} {
		r := d.get(path, as(operate.LookWithoutPayload)).want(t, http.StatusOK)
		testkit.Check(t, !strings.Contains(r.body, "customer-7"), "%s shows a key: %s", path, r.body)
	}
	why, once := fields{"reason": "INC-7"}, key(watermill.NewUUID())
	var both sync.WaitGroup
	for _, one := range []*desk{d, other} {
		both.Go(func() {
			r := one.post("/sequences/3/release", why, once)
			testkit.Check(t, r.StatusCode == http.StatusOK, "status %d: %s", r.StatusCode, r.body)
		})
	}
	both.Wait()
	testkit.Must(d.db.ExecContext(t.Context(), `DELETE FROM spillway_parked WHERE seq = 3`)) // as its owner does
	other.post("/sequences/3/release", why, once).want(t, http.StatusOK, `"messages":0`)
	d.post("/sequences/3/release", fields{"reason": "INC-8"}, once).want(t, http.StatusUnprocessableEntity, operate.ProblemKeyReused)
	d.post("/sequences/3/skip", why).want(t, http.StatusNotFound)
	d.post("/sequences/1/release", why).want(t, http.StatusConflict, "tried again by itself")
	d.post("/sequences/1/skip", fields{"reason": "INC-7", "all": true}).want(t, http.StatusBadRequest, `"all"`)
	d.post("/sequences/1/discard", fields{"reason": "INC-7", "all": true}).want(t, http.StatusOK, `"messages":2`)
	n := d.kinds()
	testkit.Check(t, n["sequence"] == 2, "the record has %v", n)
}

// Feature V13: without the right nothing of a payload is in any answer, and what is masked is masked in all of them.
func TestMasks(t *testing.T) {
	d := newDesk(t, masking).holding(fixture.Letter("a", `{"card":"4111-secret","plain":"value-of-payload"}`, secrets))
	body := fields{"seqs": []int{1}, "reason": "INC-7 password=hunter2", "edit": fields{"merge": fields{"card": "4111-secret"},
		"set": fields{"tenant": "value-of-metadata"}}}
	plan := d.post("/plan", body).want(t, http.StatusOK).body
	d.post("/campaigns", body).want(t, http.StatusCreated)
	testkit.Must(sqlshare.NewStore(t.Context(), d.db, "shop"))
	d.post("/outages/freeze", fields{"all": true, "reason": "INC-7 password=hunter2"}).want(t, http.StatusOK)
	id := read[operate.CampaignsData](t, d.get("/campaigns")).Campaigns[0].ID
	answers := map[string]string{"/plan": plan}
	for _, row := range api.Table() {
		path := strings.NewReplacer("{seq}", "1", "{name}", "x", "{id}", id, "{cause}", "9f3a").Replace(row.Pattern)
		if row.Method == http.MethodGet {
			answers[path] = d.get(path).body
			low := d.get(path, as(operate.LookWithoutPayload)).body
			testkit.Check(t, !strings.Contains(low, "value-of"),
				"%s: without the right to look the answer has a value of a message: %s", path, low)
		}
	}
	for path, body := range answers {
		testkit.Check(t, !strings.Contains(body, "4111-secret") && !strings.Contains(body, "hunter2"),
			"%s: the answer has what is masked: %s", path, body)
	}
	if !strings.Contains(answers["/letters/1"], "value-of-payload") || !json.Valid([]byte(answers["/letters/1"])) {
		t.Errorf("the letter is %s", answers["/letters/1"])
	}
	d.get("/letters/1/payload").want(t, http.StatusForbidden, operate.ProblemMasked)
	d.post("/letters/1/payload", fields{}).want(t, http.StatusBadRequest, `"field":"reason"`)
	d.post("/letters/1/payload", fields{"reason": "INC-7"}).want(t, http.StatusOK, "4111-secret")
	testkit.Check(t, d.kinds()["shown"] == 1, "the record has %v", d.kinds())
}
