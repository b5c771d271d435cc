package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/redrive/erasure"
)

// Policies returns the standing policies, masked.
func (d *Desk) Policies(ctx context.Context) (all inside.Policies, err error) {
	err = d.get(ctx, &all, nil, "policies")
	return all, err
}

// FreezePolicies freezes or thaws a policy, or all without a name.
func (d *Desk) FreezePolicies(ctx context.Context, who operate.Person, name string, frozen bool) (bool, error) {
	path := []string{"policies", "thaw"}
	if frozen {
		path[1] = "freeze"
	}
	if name != "" {
		path = []string{"policies", name, path[1]}
	}
	var v operate.PolicyChanged
	err := d.post(ctx, &v, newKey(), operate.ReasonBody{Reason: who.Reason}, path...)
	return v.Changed, err
}

// ReleaseCause lets a policy take letters of a cause again, which begins as given.
func (d *Desk) ReleaseCause(ctx context.Context, who operate.Person, name, cause string) (string, error) {
	var v operate.PolicyChanged
	body := operate.ReleaseBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, Cause: cause}
	err := d.post(ctx, &v, newKey(), body, "policies", name, "release")
	return v.Cause, err
}

// Outages are the outages and freezes that the instances share, or what the process holds that answers, if they share
// nothing.
func (d *Desk) Outages(ctx context.Context) ([]breaker.Status, error) {
	var v operate.BreakersData
	err := d.get(ctx, &v, nil, "outages")
	if errors.Is(err, operate.ErrNoOutages) {
		err = d.get(ctx, &v, nil, "breakers")
	}
	return v.Breakers, err
}

// Hold freezes a handler, or all without a name, or ends that.
func (d *Desk) Hold(ctx context.Context, who operate.Person, handler string, hold bool) (bool, error) {
	what := "release"
	if hold {
		what = "freeze"
	}
	var v operate.HandlerChanged
	body := operate.HandlerBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, Handler: handler,
		All: handler == ""}
	err := d.post(ctx, &v, newKey(), body, "outages", what)
	return v.Changed, err
}

// BreakLeases takes letters away from programs that are gone.
func (d *Desk) BreakLeases(ctx context.Context, who operate.Person, seqs []int64) ([]int64, error) {
	var v operate.LeasesData
	err := d.post(ctx, &v, newKey(),
		operate.LeasesBody{ReasonBody: operate.ReasonBody{Reason: who.Reason}, Seqs: seqs}, "leases", "break")
	return v.Broken, err
}

// Erase erases a person's data. A server does as much in one request as it has time for: the same key goes on.
func (d *Desk) Erase(ctx context.Context, r erasure.Request) (all erasure.Report, err error) {
	body := operate.ErasureBody{ReasonBody: operate.ReasonBody{Reason: r.Reason}, IDs: r.IDs, Metadata: r.Metadata,
		RemoveKeys: r.RemoveKeys, ForgetIDs: r.ForgetIDs}
	key, path := newKey(), []string{"erasures"}
	if r.DryRun {
		key, path = "", []string{"erasures", "plan"}
	}
	for {
		var v operate.ErasedData
		if err := d.post(ctx, &v, key, body, path...); err != nil {
			return all, err
		}
		did := v.Letters + v.Delayed + v.Keys + v.Texts
		v.Letters, v.Delayed, v.Keys, v.Texts = v.Letters+all.Letters, v.Delayed+all.Delayed, v.Keys+all.Keys, v.Texts+all.Texts
		all = v.Report
		switch {
		case v.Complete:
			return all, nil
		case r.DryRun:
			return all, fmt.Errorf("the server could not look at all of it in time: it found %d letters so far",
				all.Letters)
		case did > 0:
		case all.LettersInHand+all.DelayedInHand+all.KeysInHand+len(all.CampaignsOpen) > 0:
			return all, erasure.ErrInHand
		default:
			return all, errors.New("the server did nothing more in the time of one request")
		}
	}
}
