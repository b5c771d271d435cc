package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// Report is what the program saw.
type Report struct {
	Causes      int `json:"causes"`
	FailedAgain int `json:"failed_again"` // of the canary that came too early
	Redriven    int `json:"redriven"`
	Succeeded   int `json:"succeeded"`
	Edited      int `json:"edited"`
	Entries     int `json:"entries"` // of the record
}

// The parts of the answers that this program needs.
type (
	cause struct {
		Cause, Class, Reason string
		Count                int
	}
	campaign struct {
		ID, State, Why                string
		Selected, Redriven, Succeeded int
		FailedAgain                   int `json:"failed_again"`
		NotHeard                      int `json:"not_heard"`
	}
	object = map[string]any
)

// ended reports whether the campaign has ended, and all of it was heard of.
func (c campaign) ended() bool {
	return c.State == "cancelled" || c.State == "finished" && c.NotHeard == 0
}

// night is one incident.
type night struct {
	ann, bob client
	deploy   string // the address that deploys the fix
	bugs     []string
	typo     string
	cut      string
	Report
}

// Close closes the incident of a service at an address, as two persons who have a token each.
func Close(ctx context.Context, address, ann, bob string) (Report, error) {
	base := address + "/deadletters/api/v1/"
	n := &night{ann: client{base, ann}, bob: client{base, bob}, deploy: address + "/deploy"}
	for _, step := range []func(context.Context) error{n.look, n.tooEarly, n.fix, n.bringBack, n.edit, n.discard,
		n.handOver} {
		if err := step(ctx); err != nil {
			return n.Report, err
		}
	}
	return n.Report, nil
}

// look finds out what failed.
func (n *night) look(ctx context.Context) error {
	var me struct{ Person, Right string }
	if err := n.ann.get(ctx, "", &me); err != nil || me.Person != "ann" || me.Right != "operate" {
		return errors.Join(fmt.Errorf("the server takes me for %q with the right to %q", me.Person, me.Right), err)
	}
	var answer struct{ Causes []cause }
	if err := n.ann.get(ctx, "causes", &answer); err != nil {
		return err
	}
	n.Causes = len(answer.Causes)
	for _, c := range answer.Causes {
		switch {
		case c.Reason == "unknown_currency":
			n.typo = c.Cause
		case c.Class == "invalid":
			n.cut = c.Cause
		default:
			n.bugs = append(n.bugs, c.Cause)
		}
	}
	return nil
}

// tooEarly redrives before the fix is out: the canary fails, and the campaign stops itself.
func (n *night) tooEarly(ctx context.Context) error {
	chosen := object{"filter": object{"causes": n.bugs}, "canary": 5, "rate": 200}
	var plan struct{ Letters int }
	if err := n.ann.post(ctx, "plan", chosen, &plan); err != nil || plan.Letters == 0 {
		return errors.Join(fmt.Errorf("the dry run has %d letters", plan.Letters), err)
	}
	chosen["reason"], chosen["seen"] = "INC-7: is it over?", plan.Letters
	var c campaign
	if err := n.ann.post(ctx, "campaigns", chosen, &c); err != nil {
		return err
	}
	if err := n.ann.watch(ctx, c.ID, func(now campaign) bool { c = now; return now.State == "paused" || now.ended() }); err != nil {
		return err
	}
	if n.FailedAgain = c.FailedAgain; c.State != "paused" || c.FailedAgain == 0 {
		return fmt.Errorf("the campaign did not stop itself: %+v", c)
	}
	return n.ann.post(ctx, "campaigns/"+c.ID+"/cancel", object{"reason": "INC-7: the fix is not out yet"}, &c)
}

func (n *night) fix(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.deploy, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// bringBack redrives after the fix. Its request is sent twice, as after a timeout. A second person approves.
func (n *night) bringBack(ctx context.Context) error {
	body := object{"filter": object{"causes": n.bugs}, "rate": 500, "approval": true, "reason": "INC-7: the fix is out"}
	var c, again campaign
	key := newKey()
	for _, into := range []*campaign{&c, &again} {
		if err := n.ann.do(ctx, http.MethodPost, "campaigns", key, body, into); err != nil {
			return err
		}
	}
	if c.ID != again.ID {
		return fmt.Errorf("sent twice, it started %s and %s", c.ID, again.ID)
	}
	if err := n.bob.post(ctx, "campaigns/"+c.ID+"/approve", object{"reason": "INC-7: I agree"}, &c); err != nil {
		return err
	}
	return n.through(ctx, c.ID)
}

// through waits until a campaign is through, and all of it was heard of.
func (n *night) through(ctx context.Context, id string) error {
	var c campaign
	if err := n.ann.watch(ctx, id, func(now campaign) bool { c = now; return now.ended() }); err != nil {
		return err
	}
	if c.State != "finished" || c.Redriven != c.Selected || c.Succeeded != c.Redriven {
		return fmt.Errorf("the campaign is %+v", c)
	}
	n.Redriven += c.Redriven
	n.Succeeded += c.Succeeded
	return nil
}

// edit redrives what the sender wrote wrong, corrected on its way.
func (n *night) edit(ctx context.Context) error {
	var c campaign
	err := n.ann.post(ctx, "campaigns", object{"filter": object{"causes": []string{n.typo}},
		"edit": object{"merge": object{"currency": "EUR"}}, "reason": "INC-7: the sender wrote EU"}, &c)
	if err != nil {
		return err
	}
	n.Edited = c.Selected
	return n.through(ctx, c.ID)
}

// discard gives up what is of no use: those letters that were counted, and no later ones.
func (n *night) discard(ctx context.Context) error {
	var counted struct {
		Count  int
		MaxSeq int64 `json:"max_seq"`
	}
	if err := n.ann.get(ctx, "letters/count?cause="+url.QueryEscape(n.cut), &counted); err != nil {
		return err
	}
	body := object{"filter": object{"causes": []string{n.cut}, "max_seq": counted.MaxSeq}, "seen": counted.Count,
		"reason": "INC-7: the sender sends them again"}
	var done struct {
		Letters  int
		Complete bool
	}
	key := newKey()
	for !done.Complete { // of very many letters each request does a part
		if err := n.ann.do(ctx, http.MethodPost, "discards", key, body, &done); err != nil {
			return err
		}
	}
	if done.Letters != counted.Count {
		return fmt.Errorf("%d letters were counted, and %d discarded", counted.Count, done.Letters)
	}
	return nil
}

// handOver reads the record, page by page, and sees that nothing waits.
func (n *night) handOver(ctx context.Context) error {
	var health struct{ Letters map[string]int }
	if err := n.ann.get(ctx, "health", &health); err != nil || health.Letters["waiting"] > 0 {
		return errors.Join(fmt.Errorf("%d letters wait", health.Letters["waiting"]), err)
	}
	for next := ""; ; {
		var page struct {
			Events []struct{ By, Reason, Kind string }
			Next   string
		}
		if err := n.ann.get(ctx, "audit?limit=500&by=ann"+next, &page); err != nil {
			return err
		}
		n.Entries += len(page.Events)
		if next = "&after=" + url.QueryEscape(page.Next); page.Next == "" {
			return nil
		}
	}
}
