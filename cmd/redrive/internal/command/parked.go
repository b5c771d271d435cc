package command

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/connect"
	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/apiclient"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// parkedIn opens the database of parked messages.
func (a *app) parkedIn(ctx context.Context) (*sql.DB, error) {
	db, err := a.database(ctx)
	if err == nil {
		err = connect.Require(ctx, db, "parked")
	}
	return db, err
}

func seqOf(arg string) (int64, error) {
	seq, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || seq < 1 {
		return 0, wrong("SEQ is %q: it must be a number, as redrive sequences prints it", arg)
	}
	return seq, nil
}

// parkedKeys returns the keys whose messages wait. A database without their table has none.
func (a *app) parkedKeys(ctx context.Context, limit int) ([]sequence.Parked, error) {
	if a.settings.url != "" {
		d, err := a.remote(ctx)
		if err != nil {
			return nil, err
		}
		return d.Sequences(ctx, limit)
	}
	db, err := a.database(ctx)
	if err != nil {
		return nil, err
	}
	return sequence.List(ctx, db, a.settings.service, limit)
}

func (a *app) showSequence() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "show SEQ", Short: "Show the messages of a key that wait, and why the first one does",
		Long: `show prints a key, why its first message waits, and the messages behind it in their order. Payloads are not shown. With --json it prints a
message a line.`,
		Example: "  redrive sequences show 1042",
		Args:    arguments(1, 1, "a SEQ"),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := seqOf(args[0])
			if err = firstOf(err, within("--limit", limit, 1, letters.MaxLimit)); err != nil {
				return err
			}
			d, err := a.sequenceDesk(cmd.Context())
			if err != nil {
				return err
			}
			v, err := d.SequenceOf(cmd.Context(), seq, limit)
			if err != nil {
				return undecided(seq, err)
			}
			return a.parked(v)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "the largest number of messages")
	return cmd
}

func (a *app) parked(v operate.SequenceData) error {
	t := &screen.Table{Columns: []screen.Column{
		{Name: "SEQ", Right: true}, {Name: "OFFSET", Right: true}, {Name: "ID", Min: 8, Style: screen.Bold},
		{Name: "SENT", Style: screen.Dim, Drop: 1},
		{Name: "BYTES", Right: true, Drop: 2}, {Name: "DECIDED", Style: screen.Amber},
	}}
	for at, m := range v.Waiting {
		if a.json {
			if err := a.screen.JSON(m); err != nil {
				return err
			}
			continue
		}
		if at == 0 {
			a.parkedHead(v.Parked, m)
		}
		t.Row(m.Seq, m.Position, m.ID, a.when(m.SentAt), m.Bytes, m.Decided)
	}
	if !a.json {
		a.screen.Head("messages")
		a.screen.Table(t)
		if len(v.Waiting) < v.Messages {
			a.screen.Note("%s wait: --limit shows more", several(v.Messages, "message"))
		}
	}
	return nil
}

func (a *app) parkedHead(p sequence.Parked, m operate.ParkedData) {
	for _, field := range [][2]string{
		{"key", a.maskSequence(&p)}, {"state", waitsFor(p)}, {"topic", p.Topic},
		{"partition", strconv.Itoa(int(p.Partition))}, {"group", p.Group},
		{"consumer", p.Consumer}, {"due", a.when(p.Due)}, {"decided by", p.By}, {"reason", p.Why},
		{"class", m.Class}, {"description", m.Description}, {"attempts", count(m.Attempts)},
		{"first failed", a.stamped(m.FirstFailedAt)},
		{"last failed", a.stamped(m.LastFailedAt)},
	} {
		if field[1] != "" {
			a.screen.Field(field[0], field[1])
		}
	}
}

// undecided says what can be done about a decision that was refused.
func undecided(seq int64, err error) error {
	switch {
	case errors.Is(err, sequence.ErrNotParked):
		return none("SEQ %d: %w; redrive sequences lists those that do", seq, err)
	case errors.Is(err, sequence.ErrNotFirst):
		return none("SEQ %d: %w; decide about that one: the messages of a key go in their order", seq, err)
	case errors.Is(err, sequence.ErrDecided):
		return none("SEQ %d: %w; the instance that has the partition carries it out: redrive sequences says late if none does", seq, err)
	case errors.Is(err, sequence.ErrNotHeld):
		return none("SEQ %d: %w: it is tried again by itself, and redrive sequences says when; skip or discard it if that is of no use", seq, err)
	case errors.Is(err, apiclient.ErrChanged):
		return none("SEQ %d: %w", seq, err)
	}
	return err
}
