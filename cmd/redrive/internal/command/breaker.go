package command

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/connect"
	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/sqlshare"
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

// outages opens what the breakers share. Looking makes no table.
func (a *app) outages(ctx context.Context) (*sqlshare.Store, error) {
	db, err := a.database(ctx)
	if err == nil {
		err = connect.Require(ctx, db, "outages")
	}
	if err != nil {
		return nil, err
	}
	return sqlshare.NewStore(ctx, db, a.settings.service)
}

// heldHandlers are the handlers whose messages are held in all instances.
func (a *app) heldHandlers(ctx context.Context) ([]breaker.Status, error) {
	if a.settings.url != "" {
		d, err := a.remote(ctx)
		if err != nil {
			return nil, err
		}
		return d.Outages(ctx)
	}
	store, err := a.outages(ctx)
	if err != nil {
		return nil, err
	}
	return store.List(ctx)
}

// holder opens what holds messages of handlers. The freeze is on record, if the letters are in the database too.
func (a *app) holder(ctx context.Context) (func(handler, reason string, hold bool) (bool, error), error) {
	var d *desk
	if a.settings.url != "" {
		over, err := a.remote(ctx)
		if err != nil {
			return nil, err
		}
		d = over
	} else {
		shared, err := a.outages(ctx)
		if err != nil {
			return nil, err
		}
		store, err := a.emptyStore(ctx)
		if errors.Is(err, connect.ErrMissing) {
			return func(handler, reason string, hold bool) (bool, error) {
				if hold {
					return true, shared.Freeze(ctx, handler, reason, a.settings.by)
				}
				return shared.Release(ctx, handler, reason, a.settings.by)
			}, nil
		}
		if err != nil {
			return nil, err
		}
		d = a.here(store, nil)
	}
	return func(handler, reason string, hold bool) (bool, error) {
		return d.Hold(ctx, a.person(reason), handler, hold)
	}, nil
}

func (a *app) breakerList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List outages and freezes",
		Long:    "list prints the handlers whose messages are held, in all instances: by an outage that was found, or by hand.",
		Example: "  redrive breaker list --json",
		Args:    arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.heldHandlers(cmd.Context())
			if err != nil {
				return err
			}
			if len(all) == 0 {
				a.screen.Note("no outage and no freeze: all messages pass")
				return nil
			}
			return a.outageTable(all)
		},
	}
}

func (a *app) outageTable(all []breaker.Status) error {
	t := &screen.Table{Columns: []screen.Column{
		{Name: "HANDLER", Style: screen.Bold}, {Name: "SCOPE", Min: 6, Drop: 2}, {Name: "STATE", Style: screen.Amber},
		{Name: "SINCE", Style: screen.Dim}, {Name: "BY", Min: 8}, {Name: "REASON", Min: 16},
		{Name: "CAUSE", Min: 16, Drop: 1},
	}}
	for _, o := range all {
		if a.json {
			if err := a.screen.JSON(o); err != nil {
				return err
			}
			continue
		}
		handler, by := o.Handler, o.Actor
		if handler == "" {
			handler = "(all)"
		}
		if by == "" {
			by = o.Instance
		}
		t.Row(handler, o.Scope, string(o.State), a.when(o.Since), by, o.Reason, o.Cause)
	}
	if !a.json {
		a.screen.Table(t)
	}
	return nil
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
			set, err := a.holder(cmd.Context())
			if err != nil {
				return err
			}
			handler := handlerOf(args)
			if !yes {
				if err := a.screen.Confirm("hold the messages of %s of %s in all instances?", named(handler),
					a.owner()); err != nil {
					return err
				}
			}
			if _, err := set(handler, reason, true); err != nil {
				return err
			}
			return a.froze(handler, "frozen")
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
			set, err := a.holder(cmd.Context())
			if err != nil {
				return err
			}
			handler := handlerOf(args)
			released, err := set(handler, cmp.Or(reason, "released"), false)
			if err != nil {
				return err
			}
			if !released {
				return none("%s of %s: there is no freeze; redrive breaker list shows all", named(handler), a.owner())
			}
			return a.froze(handler, "released")
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the log of the instances")
	return cmd
}

// froze says what became of a freeze.
func (a *app) froze(handler, state string) error {
	if a.json {
		return a.screen.JSON(struct {
			Handler string `json:"handler"`
			State   string `json:"state"`
		}{handler, state})
	}
	a.screen.Line("%s of %s: %s", named(handler), a.owner(), state)
	return nil
}

func handlerOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func named(handler string) string {
	if handler == "" {
		return "all handlers"
	}
	return "the handler " + handler
}
