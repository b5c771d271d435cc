package operate

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V10, V11: nothing is done without the right to it and a reason. The desk has no store: an act would panic.
func TestDeskAsksForRightAndReason(t *testing.T) {
	ctx, d, s := t.Context(), &Desk{}, Selection{Seqs: []int64{1}}
	for name, do := range map[string]func(Person) error{
		"discard": func(who Person) error {
			_, _, err := d.Carry(ctx, who, Deciding{What: Discard, Selection: s})
			return err
		},
		"restore": func(who Person) error {
			_, _, err := d.Carry(ctx, who, Deciding{What: Restore, Selection: s})
			return err
		},
		"start":   func(who Person) error { _, _, err := d.Begin(ctx, who, Beginning{}); return err },
		"approve": func(who Person) error { _, err := d.Steer(ctx, who, "id", SteeringOf("approve"), 0); return err },
		"pause":   func(who Person) error { _, err := d.Steer(ctx, who, "id", SteeringOf("pause"), 0); return err },
		"rate":    func(who Person) error { _, err := d.Steer(ctx, who, "id", SteeringOf("rate"), 1); return err },
	} {
		least := Act
		if name == "approve" {
			least = Approve
		}
		forbidden, wrong := (*Forbidden)(nil), (*Wrong)(nil)
		err := do(Person{Name: "ann", Reason: "INC-7", Right: least - 1})
		testkit.Check(t, errors.As(err, &forbidden), "%s with too little right: %v", name, err)
		for _, reason := range []string{"", "a\x00b", strings.Repeat("x", MaxText+1)} {
			err := do(Person{Name: "ann", Reason: reason, Right: least})
			testkit.Check(t, errors.As(err, &wrong) && wrong.Field == "reason",
				"%s for the reason %.10q: %v", name, reason, err)
		}
	}
	looks := Person{Name: "ann", Reason: "INC-7", Right: Look}
	_, _, planned := d.Plan(ctx, looks, campaigns.Request{}, 0)
	for _, err := range []error{d.Show(ctx, looks, 1), planned} {
		forbidden := (*Forbidden)(nil)
		testkit.Check(t, errors.As(err, &forbidden), "a person who may look: %v", err)
	}
}

// Feature D14: who may not look gets no value of a message with an event, and no person gets one that is masked.
func TestEventsAreMasked(t *testing.T) {
	d := &Desk{}
	events := []letters.Event{{MessageID: "password=hunter2", Act: letters.Act{
		Reason: "password=hunter2", Detail: `{"set":{"tenant":"blue","password":"hunter2"}}`}}}
	for right, detail := range map[Right]string{LookWithoutPayload: "", Look: "blue"} {
		e := d.Events(Person{Right: right}, events)[0]
		all := e.MessageID + e.Reason + e.Detail
		testkit.Check(t, !strings.Contains(all, "hunter2") && strings.Contains(all, privacy.Mark) &&
			strings.Contains(e.Detail, detail) && (detail != "" || e.Detail == ""), "with the right %d: %+v", right, e)
	}
}

// A selection in an address is the same selection whenever it is read.
func TestSelectionTravels(t *testing.T) {
	texts := rapid.SliceOfNDistinct(rapid.StringN(1, 20, -1), 0, 3, rapid.ID) // each value counts once
	rapid.Check(t, func(t *rapid.T) {
		var f letters.Filter
		for _, list := range filterLists(&f) {
			if some := texts.Draw(t, "list"); len(some) > 0 {
				*list = some
			}
		}
		if n := rapid.IntRange(0, len(letters.Statuses())).Draw(t, "statuses"); n > 0 {
			f.Statuses = letters.Statuses()[:n]
		}
		if rapid.Bool().Draw(t, "class") {
			f.Classes = []classify.Class{classify.ClassPermanent, classify.ClassUnknown}
		}
		if rapid.Bool().Draw(t, "metadata") {
			f.Metadata = map[string]string{"a": rapid.String().Draw(t, "value"), "b": "="}
		}
		if rapid.Bool().Draw(t, "unsealed") {
			f.SealKeys = append(f.SealKeys, "")
		}
		f.Description, f.Payload, f.StackHash = rapid.String().Draw(t, "text"), rapid.String().Draw(t, "payload"), rapid.String().Draw(t, "stack")
		f.NoOrigin, f.Leased = rapid.Bool().Draw(t, "no origin"), rapid.Bool().Draw(t, "leased")
		if rapid.Bool().Draw(t, "times") {
			f.Since, f.Until = time.Unix(1_700_000_000, 123_456_789).UTC(), time.Unix(1_800_000_000, 0).UTC()
		}
		f.MaxSeq = rapid.Int64Range(1, 1<<60).Draw(t, "max seq")
		want := Selection{Filter: f, Number: rapid.IntRange(1, 1<<40).Draw(t, "number")}
		if rapid.Bool().Draw(t, "single letters") {
			want = Selection{Seqs: []int64{1, 7, 1 << 60}, Filter: letters.Filter{Statuses: letters.Statuses()}, Number: 3}
		}
		got, err := ParseSelection(want.Values(), time.Now())
		testkit.Require(t, err == nil && reflect.DeepEqual(got, want), "%+v became %+v, %v", want, got, err)
	})
}

// An address that was cut or forged chooses nothing.
func TestSelectionIsChecked(t *testing.T) {
	for _, q := range []map[string][]string{
		{}, {"seq": {""}}, {"seq": {"0"}}, {"seq": {"-1"}}, {"seq": {"1 OR 1=1"}}, {"take": {"all"}}, {"take": {"all"}, "upto": {"9"}},
		{"take": {"all"}, "count": {"9"}}, {"take": {"all"}, "upto": {"9"}, "count": {"-1"}}, {"take": {"all"}, "upto": {"99999999999999999999"}, "count": {"1"}},
		{"take": {"all"}, "upto": {"9"}, "count": {"1"}, "status": {"unknown"}},
	} {
		s, err := ParseSelection(q, time.Now())
		testkit.Check(t, err != nil, "%v chooses %+v", q, s)
	}
}
