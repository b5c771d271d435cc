package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testing/fixture"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V16, V13: a cause is taken, noted and snoozed on record, by those who may act, once under a key. What could
// not be shown to others is refused, and changes nothing.
func TestCauses_noted(t *testing.T) {
	d := newDesk(t).holding(fixture.Several(3)...)
	cause := read[operate.CausesData](t, d.get("/causes").want(t, http.StatusOK)).Causes[0].Cause
	path, until := "/causes/"+cause[:8], time.Now().Add(2*time.Hour).UTC().Truncate(time.Second)
	for _, bad := range []struct {
		field string
		body  fields
	}{
		{"", fields{}}, {"reason", fields{"reason": "", "note": "x"}}, {"unsnooze", fields{"unsnooze": true, "snoozed_until": until}},
		{"note", fields{"note": strings.Repeat("x", 1001)}}, {"note", fields{"note": "two\nlines"}}, {"note", fields{"note": "\u202eevil"}}, {"note", fields{"note": "\x1b[2J"}},
		{"owner", fields{"owner": strings.Repeat("x", 101)}}, {"owner", fields{"owner": "ann\u0000"}},
		{"link", fields{"link": "javascript:alert(1)"}}, {"link", fields{"link": "//evil"}}, {"link", fields{"link": "ftp://tickets/7"}}, {"link", fields{"link": "https://"}},
		{"link", fields{"link": "https://ann:secret@tickets/7"}}, {"link", fields{"link": "https://tickets/a b"}}, {"link", fields{"link": "data:text/html,x"}},
		{"link", fields{"link": "https://tickets/" + strings.Repeat("7", 500)}},
		{"snoozed_until", fields{"snoozed_until": time.Now().Add(-time.Minute)}}, {"snoozed_until", fields{"snoozed_until": time.Now().Add(91 * 24 * time.Hour)}},
	} {
		if _, given := bad.body["reason"]; !given {
			bad.body["reason"] = "INC-7"
		}
		p := read[operate.Problem](t, d.post(path, bad.body).want(t, http.StatusBadRequest))
		testkit.Check(t, bad.field == "" || len(p.Errors) == 1 && p.Errors[0].Field == bad.field, "%v: %+v", bad.body, p)
	}
	d.post("/causes/"+strings.Repeat("0", 32), fields{"reason": "INC-7", "note": "x"}).want(t, http.StatusNotFound)
	d.post("/causes/%25", fields{"reason": "INC-7", "note": "x"}).want(t, http.StatusNotFound)
	d.post(path, fields{"reason": "INC-7", "note": "x"}, as(operate.Look)).want(t, http.StatusForbidden)
	testkit.Equal(t, "on record", d.kinds()["cause"], 0)

	once, take := key(watermill.NewUUID()), fields{"reason": "INC-7", "owner": "ann", "link": "https://tickets/7", "note": "the ledger is slow: password=hunter22"}
	d.post(path, take, once).want(t, http.StatusOK, `"cause":"`+cause, `"owner":"ann"`, `"noted_by":"ann"`)
	d.post(path, fields{"reason": "INC-7", "owner": ""}).want(t, http.StatusOK)
	again := read[operate.CauseNoteData](t, d.post(path, take, once).want(t, http.StatusOK))
	testkit.Check(t, again.Owner == "" && d.kinds()["cause"] == 2, "sent again: %+v", again)
	d.post(path, fields{"reason": "INC-7", "owner": "bob"}, once).want(t, http.StatusUnprocessableEntity, operate.ProblemKeyReused)
	snoozed := read[operate.CauseNoteData](t, d.post(path, fields{"reason": "known until tomorrow", "snoozed_until": until}).want(t, http.StatusOK))
	testkit.Check(t, snoozed.Snoozed && snoozed.SnoozedUntil.Equal(until) && snoozed.SnoozedBy == "ann" && snoozed.Link == "https://tickets/7", "%+v", snoozed)
	listed := read[operate.CausesData](t, d.get("/causes", as(operate.LookWithoutPayload)).want(t, http.StatusOK))
	testkit.Check(t, listed.Causes[0].Snoozed && strings.HasPrefix(listed.Causes[0].Note, "the ledger is slow") && !strings.Contains(listed.Causes[0].Note, "hunter22"),
		"%+v", listed.Causes[0].CauseNote)
	d.post(path, fields{"reason": "it is repaired", "unsnooze": true}).want(t, http.StatusOK, `"snoozed_by":"ann"`)
	testkit.Check(t, !read[operate.CausesData](t, d.get("/causes?begins="+cause[:8])).Causes[0].Snoozed, "it is snoozed")
	events := read[operate.EventsData](t, d.get("/audit?kind=cause&order=oldest").want(t, http.StatusOK)).Events
	testkit.Check(t, len(events) == 4 && events[2].By == "ann" && events[2].Reason == "known until tomorrow" && events[2].Seq == 0 &&
		events[2].Detail == "cause "+cause+": snoozed until "+until.Format(time.RFC3339), "%+v", events)

	d.post("/campaigns", fields{"reason": "INC-7", "filter": letters.Filter{Causes: []string{cause}}, "rate": 1, "approval": true}, once).want(t, http.StatusCreated)
	shown := read[operate.CampaignsData](t, d.get("/campaigns").want(t, http.StatusOK)).Campaigns[0]
	notes := read[operate.CampaignRecord](t, d.get("/campaigns/"+shown.ID).want(t, http.StatusOK)).Notes
	testkit.Check(t, len(notes) == 1 && notes[0].Cause == cause && strings.HasPrefix(notes[0].Note, "the ledger is slow"), "%+v", notes)
}
