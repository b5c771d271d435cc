package campaigns

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Config configures New. A program that only looks at campaigns, or pauses them, needs none of it.
type Config struct {
	// Allow lists the topics, by their exact names, that letters may be published to. A Worker publishes to no other.
	// Without it Plan and Start leave the decision to the workers. Required for NewWorker.
	Allow []string
	// ReentryTopic returns the topic at which a letter enters instead of its origin topic if Request.FirstStage is set,
	// as redrive.Rules.ReentryTopic does. Default: none, and workers leave such campaigns to others.
	ReentryTopic func(poison.Letter) string
	// Edits are functions that Request.Edit names. A function may change the payload and the metadata of its message.
	// It must do the same if it is called again. An error refuses the letter. The message's context ends with the
	// worker's, or with the call of Plan: a function that may take long ends with it. Workers that do not have a
	// function leave its campaigns to others. Default: none.
	Edits map[string]func(*message.Message) error
	// ApproveOver is the number of letters above which a campaign needs Approve by a second person. Default: 0, none
	// needs it.
	ApproveOver int
	// MaxRedrives is the number of redrives after which a letter that failed again is quarantined. Default:
	// redrive.DefaultMaxRedrives.
	MaxRedrives int
	// Policies are standing rules, by which workers start campaigns themselves. Default: none.
	Policies []Policy
	// Shared: Classifier decides which refusals of a publisher are for size. Tracer follows each publishing of a
	// letter. Privacy masks the texts of errors: in the log, in a Plan, and what is kept of a campaign and of its
	// letters. Logger receives what a Worker does.
	observe.Shared
}

// text returns the text of err as it may be shown and kept: masked, and then cut.
func (c *Config) text(err error, limit int) string {
	return boundedtext.Text(c.Privacy.Text(boundedtext.Error(err, privacy.MaxText)), limit)
}

func (c *Config) setDefaults() {
	if c.MaxRedrives == 0 {
		c.MaxRedrives = redrive.DefaultMaxRedrives
	}
	c.Logger = logging.Wrap(c.Logger, c.Privacy.Text)
	c.Allow = slices.Clone(c.Allow)
}

func (c *Config) validate() error {
	if slices.Contains(c.Allow, "") {
		return errors.New("campaigns: Config.Allow contains an empty topic: name each topic")
	}
	if c.ApproveOver < 0 || c.MaxRedrives < 0 {
		return fmt.Errorf("campaigns: Config.ApproveOver (%d) and MaxRedrives (%d) must not be negative", c.ApproveOver,
			c.MaxRedrives)
	}
	for name, edit := range c.Edits {
		if name == "" || edit == nil {
			return fmt.Errorf("campaigns: Config.Edits has the name %q: give each function a name, and none that is nil", name)
		}
	}
	return nil
}

// Campaigns starts campaigns on the letters of a letters.Store, and looks after them. It is safe for concurrent use, by
// any number of processes. It has no goroutines. All campaigns are those of the store's service.
type Campaigns struct {
	handle
	store  *letters.Store
	db     *database.Database
	config Config
}

// New returns Campaigns on the letters of store. It creates or upgrades its tables, spillway_campaigns,
// spillway_campaign_letters, spillway_campaign_events and spillway_policies, in the store's database, within 30
// seconds.
func New(ctx context.Context, store *letters.Store, config Config) (*Campaigns, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if store == nil {
		return nil, errors.New("campaigns: the Store is nil: check the error of letters.NewStore")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	var err error
	if config.Policies, err = prepared(config.Policies, hidden.Of(store).KeepsWaiting()); err != nil {
		return nil, err
	}
	db, err := database.Open(ctx, "campaigns: New", hidden.Of(store).DB(), hidden.Of(store).Service(), tables...)
	if err != nil {
		return nil, err
	}
	c := &Campaigns{store: store, db: db, config: config}
	c.handle = hidden.By(inner{c})
	if err := c.register(ctx); err != nil {
		return nil, fmt.Errorf("campaigns: New: write down the policies: %w", err)
	}
	return c, nil
}

var errNoContext = errors.New("campaigns: the context is nil: use context.Background() if there is no other")

// maxWrite bounds every statement and transaction.
const maxWrite = 30 * time.Second

func (c *Campaigns) usable(ctx context.Context) error {
	if c == nil {
		return errors.New("campaigns: the Campaigns are nil: check the error of New")
	}
	if ctx == nil {
		return errNoContext
	}
	return nil
}

func (c *Campaigns) write(ctx context.Context, work func(*sql.Tx) error) error {
	if c.db.Held(ctx) {
		return errors.New("campaigns: the message's own transaction holds the database: call outside of the handler")
	}
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return c.db.OwnKey(c.db.Write(ctx, work), tables...)
}

// exec runs a statement within a transaction, and returns how many rows it changed.
func (c *Campaigns) exec(ctx context.Context, tx *sql.Tx, statement string, args ...any) (int, error) {
	result, err := tx.ExecContext(ctx, c.db.Statement(statement), args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

func (c *Campaigns) query(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string,
	args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return c.db.Query(ctx, reset, scan, c.db.Statement(query), args...)
}

// within queries within a transaction.
func (c *Campaigns) within(ctx context.Context, tx *sql.Tx, scan func(*sql.Rows) error, query string,
	args ...any) error {
	return database.Each(ctx, tx, scan, c.db.Statement(query), args...)
}

// lock ends a query whose rows this transaction is about to change.
func (c *Campaigns) lock() string { return strings.TrimSuffix(c.db.SkipLocked(), " SKIP LOCKED") }

func (c *Campaigns) service() any { return []byte(hidden.Of(c.store).Service()) }

type handle = hidden.Handle[inner]

// inner is Campaigns with the methods that only Spillway's own packages call.
type inner struct{ *Campaigns }

// Store returns the Store of New.
func (c inner) Store() *letters.Store { return c.store }

// Summary counts the campaigns of the service by their states. It is made for metrics.
func (c inner) Summary(ctx context.Context) (s inside.Summary[State], err error) {
	err = c.query(ctx, func() { s.States = make(map[State]int) }, func(rows *sql.Rows) error {
		var state string
		var n int
		err := rows.Scan(&state, &n)
		s.States[State(state)] = n
		return err
	}, `SELECT state, COUNT(*) FROM spillway_campaigns WHERE service = ? GROUP BY state`, c.service())
	if err == nil && s.States[Paused] > 0 {
		err = c.query(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&s.Stopped) },
			`SELECT COUNT(*) FROM spillway_campaign_events WHERE actor = ? AND seq IN (
	SELECT MAX(e.seq) FROM spillway_campaign_events AS e JOIN spillway_campaigns AS c ON c.id = e.campaign
	WHERE c.service = ? AND c.state = 'paused' AND e.what = 'paused' GROUP BY e.campaign)`, c.db.Text(ByItself), c.service())
	}
	if err == nil {
		err = c.query(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&s.Blocked) },
			`SELECT COUNT(*) FROM spillway_policies WHERE service = ? AND cause <> '' AND stopped = 1`, c.service())
	}
	if err != nil {
		return inside.Summary[State]{}, fmt.Errorf("campaigns: count the campaigns: %w", err)
	}
	return s, nil
}

// tables are the campaigns, their letters, what was done with them, and the standing policies.
var tables = []schema.Table{
	{
		Component: "campaigns", Name: "spillway_campaigns", Key: []string{"id"},
		Versions: []schema.Version{{File: "0005_campaigns.sql", Columns: []string{
			"id", "service", "policy", "cause", "state", "version", "request", "created_at", "resume_to", "why", "approved_by", "left_out",
			"not_before", "started_at", "ended_at", "resume_at", "pauses", "rate", "claims", "next_due", "late", "canary",
			"canary_at", "leased_until", "select_after", "max_seq", "selected", "redriven", "quarantined", "refused", "failed", "gone",
			"succeeded", "failed_again", "heard_before", "failed_before", "redriven_before", "swept",
		}}},
	},
	{
		Component: "campaign_letters", Name: "spillway_campaign_letters", Key: []string{"campaign", "seq"},
		Versions: []schema.Version{{File: "0005_campaigns.sql", Columns: []string{
			"campaign", "seq", "claim", "first_failed_at", "size", "state", "rest_until", "tries",
			"done_at", "why",
		}}},
	},
	{
		Component: "campaign_events", Name: "spillway_campaign_events", Key: []string{"seq"},
		Versions: []schema.Version{{File: "0005_campaigns.sql", Columns: []string{
			"seq", "campaign", "occurred_at", "what", "actor", "reason", "details",
		}}},
	},
	{
		Component: "policies", Name: "spillway_policies", Key: []string{"service", "name", "cause"},
		Versions: []schema.Version{{File: "0005_campaigns.sql", Columns: []string{
			"service", "name", "cause", "version", "rule", "seen_at", "stopped", "changed_at", "changed_by", "changed_why",
		}}},
	},
}
