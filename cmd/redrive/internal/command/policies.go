package command

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

func (a *app) policies() *cobra.Command {
	cmd := &cobra.Command{
		Use: "policies", Short: "List standing policies, and freeze them",
		Long: `policies lists the rules by which the service redrives by itself: campaigns.Config.Policies. A cause that failed again after a redrive is
BLOCKED for its policy, until you release it. A freeze pauses all that a policy does, in all instances.`,
		Example: `  redrive policies
  redrive policies freeze --reason "INC-7: nothing by itself tonight"
  redrive policies release timeouts 9f3a12bc --reason "INC-7: the ledger is repaired"`,
		Args: arguments(0, 0, "none, or freeze, thaw or release"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listPolicies(cmd.Context()) },
	}
	cmd.AddCommand(a.freezePolicies(true), a.freezePolicies(false), a.releaseCause())
	return cmd
}

func (a *app) listPolicies(ctx context.Context) error {
	d, err := a.campaignDesk(ctx, false, campaigns.Config{})
	if err != nil {
		return err
	}
	var all inside.Policies
	if err := d.Get(ctx, &all, nil, "policies"); err != nil {
		return err
	}
	if len(all.Policies) == 0 {
		a.screen.Note("%s has no standing policy", a.owner())
		return nil
	}
	for i := range all.Policies {
		p := &all.Policies[i]
		p.Frozen = cmp.Or(p.Frozen, all.Frozen)
	}
	err = rows(a, all.Policies, []screen.Column{
		{Name: "POLICY", Style: screen.Bold}, {Name: "STATE", Style: screen.Amber}, {Name: "TODAY", Right: true},
		{Name: "BLOCKED", Right: true}, {Name: "SEEN", Style: screen.Dim, Drop: 1}, {Name: "RULE", Min: 16},
	}, func(p inside.Policy) []any {
		return []any{p.Name, policyState(p), p.Today, len(p.Blocked), a.when(p.SeenAt), p.Rule}
	})
	if !a.json {
		a.stops(all.Policies)
	}
	return err
}

func policyState(p inside.Policy) string {
	switch {
	case p.Frozen != nil:
		return "frozen"
	case len(p.Blocked) > 0:
		return "blocked"
	}
	return "on"
}

// stops prints what keeps policies from redriving.
func (a *app) stops(all []inside.Policy) {
	t := &screen.Table{Columns: []screen.Column{{Name: "STOPPED"}, {Name: "CAUSE", Style: screen.Bold},
		{Name: "SINCE", Style: screen.Dim}, {Name: "BY"}, {Name: "REASON", Min: 16}}}
	any := false
	for _, p := range all {
		stops := p.Blocked
		if p.Frozen != nil {
			stops = append(stops, *p.Frozen)
		}
		for _, s := range stops {
			any = true
			t.Row(p.Name, cmp.Or(s.Cause, "(all)"), a.when(s.At), s.By, strings.TrimSuffix(s.Reason+"; "+s.Note, "; "))
		}
	}
	if any {
		a.screen.Blank()
		a.screen.Table(t)
	}
}

func (a *app) freezePolicies(freeze bool) *cobra.Command {
	name, short, long := "freeze", "Let policies redrive nothing, in all instances", `freeze pauses the campaigns of a policy, or of all policies without NAME. From then on no
instance starts one, until thaw. Campaigns that persons started go on.`
	if !freeze {
		name, short, long = "thaw", "Let policies redrive again", `thaw ends a freeze. Campaigns that it paused stay paused: redrive campaigns lists them, redrive resume lets one
go on.`
	}
	var reason string
	cmd := &cobra.Command{
		Use: name + " [NAME]", Short: short, Long: long,
		Example: fmt.Sprintf("  redrive policies %s --reason \"INC-7\"", name),
		Args:    arguments(0, 1, "the name of a policy, or nothing for all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.campaignDesk(cmd.Context(), false, campaigns.Config{})
			if err != nil {
				return err
			}
			var v operate.PolicyChanged
			path := append(append([]string{"policies"}, args...), name)
			if err := d.act(cmd.Context(), &v, why(reason), path...); err != nil {
				return err
			}
			return a.policyIs(v)
		},
	}
	reasonFlag(cmd, &reason)
	return cmd
}

func (a *app) releaseCause() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "release NAME CAUSE", Short: "Let a policy redrive a cause again that is blocked for it",
		Long: `release says that a cause is repaired. The policy takes its letters again, but for those that came back before. What failed before the
release counts no more.`,
		Example: "  redrive policies release timeouts 9f3a12bc --reason \"INC-7: the ledger is repaired\"",
		Args:    arguments(2, 2, "the name of a policy, and a cause, or its first characters"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.campaignDesk(cmd.Context(), false, campaigns.Config{})
			if err != nil {
				return err
			}
			var v operate.PolicyChanged
			body := operate.ReleaseBody{ReasonBody: why(reason), Cause: args[1]}
			if err := d.act(cmd.Context(), &v, body, "policies", args[0], "release"); err != nil {
				return err
			}
			return a.policyIs(v)
		},
	}
	reasonFlag(cmd, &reason)
	return cmd
}

func (a *app) policyIs(c operate.PolicyChanged) error {
	what, before := "all policies", ""
	if c.Policy != "" {
		what = "the policy " + c.Policy
	}
	if c.Cause != "" {
		what += ", cause " + short(c.Cause)
	}
	if !c.Changed {
		before = ", as before"
	}
	return a.answer(c, "%s of %s: %s%s", what, a.owner(), c.State, before)
}
