package command

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

func (a *app) breaker() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "breaker",
		Short: "List outages, and hold or release the messages of a handler by hand",
		Long: `breaker shows and changes what the circuit breakers of a service share through the database: Config.Breaker.Store. A freeze counts
in all instances within seconds, and ends by close alone.`,
		Example: `  redrive breaker list
  redrive breaker open billing --reason "INC-7: the ledger is migrated"
  redrive breaker open --reason "INC-7: hold everything" --yes
  redrive breaker close billing`,
		Args: arguments(0, 0, "list, open or close"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.breakerList(), a.breakerOpen(), a.breakerClose())
	return cmd
}

// hold freezes a handler, or all without a name, or ends that.
func (a *app) hold(ctx context.Context, d *desk, args []string, reason, what string) (v operate.HandlerChanged, err error) {
	body := operate.HandlerBody{ReasonBody: why(reason), Handler: strings.Join(args, ""), All: len(args) == 0}
	err = d.act(ctx, &v, body, "outages", what)
	return v, err
}

func (a *app) breakerList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List outages and freezes",
		Long:    "list prints the handlers whose messages are held, in all instances: by an outage that was found, or by hand.",
		Example: "  redrive breaker list --json",
		Args:    arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.sharedDesk(cmd.Context())
			if err != nil {
				return err
			}
			var v operate.BreakersData
			if err := d.Get(cmd.Context(), &v, nil, "outages"); err != nil {
				return err
			}
			if len(v.Breakers) == 0 {
				a.screen.Note("no outage and no freeze: all messages pass")
				return nil
			}
			return a.outageTable(v.Breakers)
		},
	}
}

func (a *app) outageTable(all []breaker.Status) error {
	return rows(a, all, []screen.Column{
		{Name: "HANDLER", Style: screen.Bold}, {Name: "SCOPE", Min: 6, Drop: 2}, {Name: "STATE", Style: screen.Amber},
		{Name: "SINCE", Style: screen.Dim}, {Name: "BY", Min: 8}, {Name: "REASON", Min: 16}, {Name: "CAUSE", Min: 16, Drop: 1},
	}, func(o breaker.Status) []any {
		return []any{cmp.Or(o.Handler, "(all)"), o.Scope, string(o.State), a.when(o.Since), cmp.Or(o.Actor, o.Instance),
			o.Reason, o.Cause}
	})
}

func (a *app) breakerOpen() *cobra.Command {
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use: "open [HANDLER]", Short: "Hold the messages of a handler, or of all handlers",
		Long: `open freezes a handler in all instances of the service: its messages are held, uncounted, until breaker close. Messages in work end
as usual. Without HANDLER it freezes every handler.`,
		Example: "  redrive breaker open billing --reason \"INC-7: the ledger is migrated\"",
		Args:    arguments(0, 1, "a handler, or nothing for all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return wrong("--reason is empty: say why, for those who look at the breaker later")
			}
			d, err := a.sharedDesk(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.confirm(yes, "hold the messages of %s of %s in all instances?", named(strings.Join(args, "")),
				a.owner()); err != nil {
				return err
			}
			v, err := a.hold(cmd.Context(), d, args, reason, "freeze")
			if err != nil {
				return err
			}
			return a.froze(v)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who look at the breaker later (required)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) breakerClose() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "close [HANDLER]", Short: "End a freeze",
		Long: "close ends the freeze of a handler in all instances, or with no HANDLER the freeze of all handlers. It " +
			"ends no outage that was found.",
		Example: "  redrive breaker close billing",
		Args:    arguments(0, 1, "a handler, or nothing for all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.sharedDesk(cmd.Context())
			if err != nil {
				return err
			}
			v, err := a.hold(cmd.Context(), d, args, cmp.Or(reason, "released"), "release")
			if err != nil {
				return err
			}
			if !v.Changed {
				return none("%s of %s: there is no freeze; redrive breaker list shows all", named(v.Handler), a.owner())
			}
			return a.froze(v)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the log of the instances")
	return cmd
}

// froze says what became of a freeze.
func (a *app) froze(v operate.HandlerChanged) error {
	return a.answer(v, "%s of %s: %s", named(v.Handler), a.owner(), v.State)
}

func named(handler string) string {
	if handler == "" {
		return "all handlers"
	}
	return "the handler " + handler
}
