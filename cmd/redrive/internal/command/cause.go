package command

import (
	"cmp"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
)

func (a *app) cause() *cobra.Command {
	var reason, snooze string
	var remove []string
	var unsnooze bool
	texts := map[string]*string{"owner": new(string), "note": new(string), "link": new(string)}
	cmd := &cobra.Command{
		Use: "cause CAUSE", Short: "Say who works on a cause, and what is known of it, or snooze it",
		Long: `cause writes down what is known of a cause, for all who look at it. A snooze says that it need not be looked at
until a time. It ends earlier if more than 4 times as many letters arrive in an hour as in the hour before the snooze, and at least 10.
Notices and alerts leave it out meanwhile. What is said stays for 90 days after the last letter has gone: if the cause comes again, it is known.`,
		Example: `  redrive cause 9f3a12bc --owner ann --link https://tickets/7 --reason "INC-7"
  redrive cause 9f3a12bc --note "the ledger is slow on Mondays" --snooze 1d --reason "known until tomorrow"
  redrive cause 9f3a12bc --unsnooze --remove owner --reason "it is repaired"`,
		Args: arguments(1, 1, "a cause, or its first characters"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := operate.CauseBody{ReasonBody: why(reason), Unsnooze: unsnooze}
			fields := map[string]**string{"owner": &body.Owner, "note": &body.Note, "link": &body.Link}
			for name, field := range fields {
				if cmd.Flags().Changed(name) {
					*field = texts[name]
				}
			}
			for _, name := range remove {
				switch field := fields[name]; {
				case field == nil:
					return wrong("--remove is %q: it must be note, owner or link", name)
				case *field != nil:
					return wrong("--remove %s and --%s are both given: choose one", name, name)
				default:
					*field = new(string)
				}
			}
			if snooze != "" {
				until, err := operate.Begin("snooze", snooze, time.Now())
				if err != nil {
					return flagged(err)
				}
				body.SnoozedUntil = &until
			}
			d, err := a.desk(cmd.Context())
			if err != nil {
				return err
			}
			var v operate.CauseNoteData
			switch err := d.act(cmd.Context(), &v, body, "causes", args[0]); {
			case errors.Is(err, inside.ErrNoCause):
				return none("no cause begins with %q: redrive causes --status all lists them", args[0])
			case err != nil:
				return err
			case a.json:
				return a.screen.JSON(v)
			}
			a.screen.Line("the cause %s of %s: %s", short(v.Cause), a.owner(), cmp.Or(v.Words(), "nothing is said of it"))
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(texts["owner"], "owner", "", "who works on it")
	flags.StringVar(texts["note"], "note", "", "what is known of it, in a line")
	flags.StringVar(texts["link"], "link", "", "address of its ticket")
	flags.StringArrayVar(&remove, "remove", nil, "note, owner or link")
	flags.StringVar(&snooze, "snooze", "", "until when: 4h, 2d, 2026-03-01T08:00:00Z, at most 90 days")
	flags.BoolVar(&unsnooze, "unsnooze", false, "end a snooze")
	reasonFlag(cmd, &reason)
	return cmd
}
