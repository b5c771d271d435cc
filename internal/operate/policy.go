package operate

import (
	"context"
	"strings"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Policies returns the standing policies of the service, with reasons that are masked.
func (d *Desk) Policies(ctx context.Context) (inside.Policies, error) {
	all, err := d.Campaigns.Inside().Policies(ctx)
	stops := []*inside.Stop{all.Frozen}
	for i := range all.Policies {
		p := &all.Policies[i]
		p.Rule, stops = d.Masks.Text(p.Rule), append(stops, p.Frozen)
		for j := range p.Blocked {
			stops = append(stops, &p.Blocked[j])
		}
	}
	for _, stop := range stops {
		if stop != nil {
			stop.Reason = d.Masks.Text(stop.Reason)
		}
	}
	return all, err
}

// FreezePolicies freezes or thaws a policy, or all without a name. It reports false if it was so before.
func (d *Desk) FreezePolicies(ctx context.Context, who Person, name string, frozen bool) (changed bool, err error) {
	if err := who.allowed(Act); err != nil {
		return false, err
	}
	act, of := who.once(policyBy), "all policies"
	if name != "" {
		of = "the policy " + name
	}
	if act.Detail = "thawed: " + of; frozen {
		act.Detail = "frozen: " + of
	}
	if done, err := d.did(ctx, act); done || err != nil {
		return done, err
	}
	return d.Campaigns.Inside().FreezePolicies(ctx, name, frozen, who.Name, who.Reason, act.RedriveID)
}

// ReleaseCause lets a policy take letters of a cause again, which begins as given. It returns the cause.
func (d *Desk) ReleaseCause(ctx context.Context, who Person, name, cause string) (released string, err error) {
	if err := who.allowed(Act); err != nil {
		return "", err
	}
	act, said := who.once(policyBy), "released: the policy "+name+", cause "
	done, err := d.before(ctx, act, func(e letters.Event) bool {
		return cause != "" && strings.HasPrefix(e.Detail, said+cause)
	})
	if done != nil {
		return strings.TrimPrefix(done.Detail, said), nil
	}
	if err != nil {
		return "", err
	}
	all, err := d.Policies(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, p := range all.Policies {
		for _, stop := range p.Blocked {
			if p.Name == name && cause != "" && strings.HasPrefix(stop.Cause, cause) {
				found = append(found, stop.Cause)
			}
		}
	}
	switch len(found) {
	case 0:
		return "", inside.ErrNoPolicy
	case 1:
		_, err = d.Campaigns.Inside().ReleaseCause(ctx, name, found[0], who.Name, who.Reason, act.RedriveID)
		return found[0], err
	}
	return "", wrong("cause", "is the beginning of several: give more of it")
}
