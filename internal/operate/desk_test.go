package operate

import (
	"errors"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Features V10, V11: whatever face asks, nothing is done for a person without the right to it, or without a reason that
// the record can keep. The desk has no store: what it did anyway would panic.
func TestDeskAsksForRightAndReason(t *testing.T) {
	ctx, d, s := t.Context(), &Desk{}, Selection{Seqs: []int64{1}}
	for name, do := range map[string]func(Person) error{
		"discard": func(who Person) error { _, err := d.Decide(ctx, who, Discard, s, ""); return err },
		"restore": func(who Person) error { _, err := d.Decide(ctx, who, Restore, s, ""); return err },
		"start":   func(who Person) error { _, err := d.Start(ctx, who, campaigns.Request{}); return err },
		"approve": func(who Person) error { _, err := d.Steer(ctx, who, "id", SteeringOf("approve"), 0); return err },
		"pause":   func(who Person) error { _, err := d.Steer(ctx, who, "id", SteeringOf("pause"), 0); return err },
		"rate":    func(who Person) error { _, err := d.Steer(ctx, who, "id", SteeringOf("rate"), 1); return err },
	} {
		least := Act
		if name == "approve" {
			least = Approve
		}
		forbidden, wrong := (*Forbidden)(nil), (*Wrong)(nil)
		if err := do(Person{Name: "ann", Reason: "INC-7", Right: least - 1}); !errors.As(err, &forbidden) {
			t.Errorf("%s with too little right: %v", name, err)
		}
		for _, reason := range []string{"", "a\x00b", strings.Repeat("x", MaxText+1)} {
			if err := do(Person{Name: "ann", Reason: reason, Right: least}); !errors.As(err, &wrong) || wrong.Field != "reason" {
				t.Errorf("%s for the reason %.10q: %v", name, reason, err)
			}
		}
	}
	looks := Person{Name: "ann", Reason: "INC-7", Right: Look}
	_, _, planned := d.Plan(ctx, looks, campaigns.Request{}, 0)
	for _, err := range []error{d.Show(ctx, looks, 1), planned} {
		if forbidden := (*Forbidden)(nil); !errors.As(err, &forbidden) {
			t.Errorf("a person who may look: %v", err)
		}
	}
}

// Feature D14: a person who may not look gets no value of a message with an event, and no person gets one that is
// masked.
func TestEventsAreMasked(t *testing.T) {
	d := &Desk{}
	events := []letters.Event{{MessageID: "password=hunter2", Act: letters.Act{
		Reason: "password=hunter2", Detail: `{"set":{"tenant":"blue","password":"hunter2"}}`}}}
	for right, detail := range map[Right]string{LookWithoutPayload: "", Look: "blue"} {
		e := d.Events(Person{Right: right}, events)[0]
		if all := e.MessageID + e.Reason + e.Detail; strings.Contains(all, "hunter2") || !strings.Contains(all, privacy.Mark) ||
			!strings.Contains(e.Detail, detail) || detail == "" && e.Detail != "" {
			t.Errorf("with the right %d: %+v", right, e)
		}
	}
}
