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

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/settings"
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
	settings.Shared
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
	if config.Policies, err = prepared(config.Policies, store.Inside().KeepsWaiting()); err != nil {
		return nil, err
	}
	db, err := database.Open(ctx, "campaigns: New", store.Inside().DB(), store.Inside().Service(), tables...)
	if err != nil {
		return nil, err
	}
	c := &Campaigns{store: store, db: db, config: config}
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
	rows, err := tx.QueryContext(ctx, c.db.Statement(query), args...)
	if err != nil {
		return err
	}
	return database.Each(rows, scan)
}

// lock ends a query whose rows this transaction is about to change.
func (c *Campaigns) lock() string { return strings.TrimSuffix(c.db.SkipLocked(), " SKIP LOCKED") }

func (c *Campaigns) service() any { return []byte(c.store.Inside().Service()) }
