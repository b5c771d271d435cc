package command

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
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
  redrive breaker close billing --reason "INC-7: it is migrated"`,
		Args: arguments(0, 0, "list, open or close"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.breakerList(), a.breakerFreeze(true), a.breakerFreeze(false))
	return cmd
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
			return rows(a, v.Breakers, []screen.Column{
				{Name: "HANDLER", Style: screen.Bold}, {Name: "SCOPE", Min: 6, Drop: 2}, {Name: "STATE", Style: screen.Amber},
				{Name: "SINCE", Style: screen.Dim}, {Name: "BY", Min: 8}, {Name: "REASON", Min: 16}, {Name: "CAUSE", Min: 16, Drop: 1},
			}, func(o circuit.Status) []any {
				return []any{cmp.Or(o.Handler, "(all)"), o.Scope, string(o.State), a.when(o.Since), cmp.Or(o.Actor, o.Instance),
					o.Reason, o.Cause}
			})
		},
	}
}

// breakerFreeze begins freezes, or ends them.
func (a *app) breakerFreeze(open bool) *cobra.Command {
	name, short, long, what := "open", "Hold the messages of a handler, or of all handlers", `open freezes a handler in all instances of the service: its messages are held, uncounted, until breaker close. Messages in work end
as usual. Without HANDLER it freezes every handler.`, "freeze"
	if !open {
		name, short, long, what = "close", "End a freeze", "close ends the freeze of a handler in all instances, or with no HANDLER the freeze of all handlers. It "+
			"ends no outage that was found.", "release"
	}
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use: name + " [HANDLER]", Short: short, Long: long,
		Example: fmt.Sprintf("  redrive breaker %s billing --reason \"INC-7: the ledger is migrated\"", name),
		Args:    arguments(0, 1, "a handler, or nothing for all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.sharedDesk(cmd.Context())
			if err != nil {
				return err
			}
			body := operate.HandlerBody{ReasonBody: why(reason), Handler: strings.Join(args, ""), All: len(args) == 0}
			if err := a.confirm(yes || !open, "hold the messages of %s of %s in all instances?", named(body.Handler), a.owner()); err != nil {
				return err
			}
			var v operate.HandlerChanged
			if err := d.act(cmd.Context(), &v, body, "outages", what); err != nil {
				return err
			}
			if !open && !v.Changed {
				return none("%s of %s: there is no freeze; redrive breaker list shows all", named(v.Handler), a.owner())
			}
			return a.answer(v, "%s of %s: %s", named(v.Handler), a.owner(), v.State)
		},
	}
	reasonFlag(cmd, &reason)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask; close never does")
	return cmd
}

func named(handler string) string {
	if handler == "" {
		return "all handlers"
	}
	return "the handler " + handler
}
