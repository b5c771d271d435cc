package command

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/connect"
	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func (a *app) doctor() *cobra.Command {
	repair := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the API, or the database and its tables, your rights and the broker",
		Long: `doctor connects to what the settings name and says of each thing whether it is as it should be. It changes nothing
without --repair-counts. It ends with exit code 5 if something is wrong that a command would stumble over.`,
		Example: `  redrive doctor
  redrive doctor --broker kafka://kafka-1:9092`,
		Args: arguments(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &diagnosis{app: a, repair: repair, table: &screen.Table{Columns: []screen.Column{{Name: "CHECK"}, {Name: "RESULT"},
				{Name: "DETAIL", Min: 20}}}}
			d.run(cmd.Context())
			if !a.json {
				a.screen.Table(d.table)
			}
			if d.faults > 0 {
				return partly("doctor found %d fault(s)", d.faults)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&repair, "repair-counts", false, "repair the numbers of the causes, if they are not those of the letters")
	return cmd
}

type diagnosis struct {
	app    *app
	repair bool
	table  *screen.Table
	faults int
}

// note adds a line. Err is what is wrong, or nil.
func (d *diagnosis) note(check string, err error, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	result := screen.Span{Text: "ok", Style: screen.Green}
	if err != nil {
		d.faults++
		detail, result = err.Error(), screen.Span{Text: "WRONG", Style: screen.Red}
	}
	if d.app.json {
		_ = d.app.screen.JSON(struct {
			Check  string `json:"check"`
			OK     bool   `json:"ok"`
			Detail string `json:"detail"`
		}{check, err == nil, detail})
		return
	}
	d.table.Row(check, result, detail)
}

func (d *diagnosis) run(ctx context.Context) {
	if d.app.settings.url != "" {
		d.api(ctx)
		return
	}
	start := time.Now()
	db, err := d.app.database(ctx)
	d.note("database", err, "%s answers in %s", connect.Shown(d.app.settings.db),
		time.Since(start).Round(time.Millisecond))
	if err == nil {
		d.tables(ctx, db)
	}
	if d.app.settings.broker != "" {
		_, err := d.app.brokerOf(ctx, "")
		d.note("broker", err, "%s answers", connect.Shown(d.app.settings.broker))
	}
}

// api looks at the API, what it has, and what the person may do there.
func (d *diagnosis) api(ctx context.Context) {
	start := time.Now()
	desk, err := d.app.remote(ctx)
	if err != nil {
		d.note("api", err, "")
		return
	}
	s := desk.Service
	d.note("api", nil, "API %s of %s at %s answers in %s", s.API, d.app.owner(), desk.At(),
		time.Since(start).Round(time.Millisecond))
	var health operate.HealthData
	err = desk.Get(ctx, &health, nil, "health")
	d.note("letters", err, "%d waiting", health.Letters[string(letters.StatusWaiting)])
	var may error
	if s.Right != operate.Act.String() && s.Right != operate.Approve.String() {
		may = fmt.Errorf("you may %s, and change nothing: ask for a token with the right to %s", s.Right, operate.Act)
	}
	d.note("rights", may, "you are %s, and have the right to %s", s.Person, s.Right)
}

func (d *diagnosis) tables(ctx context.Context, db *sql.DB) {
	err := cmp.Or(connect.Require(ctx, db, lettersTables), connect.Compare(ctx, db))
	d.note("tables", err, "as this command knows them")
	d.seen(ctx, db)
	store, err := d.app.storeOn(ctx, db)
	if err != nil {
		d.note("letters", err, "")
		return
	}
	waiting, err := store.Count(ctx, letters.Filter{})
	d.note("letters", err, "%d waiting", waiting)
	d.numbers(ctx, store)
	d.note("sequences", hidden.Of(store).Numbered(ctx), "ahead of the rows")
	err = store.InitializeTopics()
	if err != nil {
		err = fmt.Errorf("this role can look, and change nothing: %w", err)
	}
	d.note("rights", err, "this role can look and act")
}

// seen says which tables this role sees in part, or may not use.
func (d *diagnosis) seen(ctx context.Context, db *sql.DB) {
	for _, is := range []struct {
		check string
		ask   func(context.Context, *sql.DB) ([]string, error)
		says  string
	}{
		{"rows", connect.Hidden, "row-level security is on for this role, which sees only the rows of %s that a policy " +
			"shows: letters may wait that no command here lists; use a role with BYPASSRLS, or add a policy for it"},
		{"tables", connect.MayNotLook, "this role may not read %s: GRANT SELECT on them"},
		{"tables", connect.MayNotWork, "this role may read %s, and change nothing: GRANT INSERT and UPDATE on them"},
	} {
		tables, err := is.ask(ctx, db)
		if err == nil && len(tables) > 0 {
			err = fmt.Errorf(is.says, strings.Join(tables, ", "))
		}
		if err != nil {
			d.note(is.check, err, "")
		}
	}
}

// numbers compares the numbers that are kept for the causes with the letters.
func (d *diagnosis) numbers(ctx context.Context, store *letters.Store) {
	wrong, err := hidden.Of(store).Numbers(ctx, d.repair)
	switch {
	case err != nil || len(wrong) == 0:
		d.note("counts", err, "those of the letters")
	case d.repair:
		d.note("counts", nil, "repaired those of %d causes", len(wrong))
	default:
		first := wrong[0]
		d.note("counts", fmt.Errorf("%d causes have wrong numbers, such as %s: %d letters are counted, and %d are there: rows were "+
			"deleted by hand, or restored in part; run redrive doctor --repair-counts, or wait for an hour", len(wrong), first.Cause,
			first.Counted, first.Letters), "")
	}
}
