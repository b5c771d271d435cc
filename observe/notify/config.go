package notify

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/settings"
)

// Config configures a Notifier. Only Sinks is required.
type Config struct {
	// Sinks receive each notice, each at its own pace: Slog, webhook.New, or a function.
	Sinks []Sink
	// Kinds are the kinds of notices that are sent. Default: all.
	Kinds []Kind
	// DB is the database in which the instances of a service agree who sends a notice, in the table spillway_notices.
	// Default: the DB of the spillway.Config that Observe is called with. If that has none, each process sends notices of
	// its own.
	DB *sql.DB
	// Instance names the process in notices. Default: the name of the host and the process's id.
	Instance string
	// Link returns an address that stands in the notice, such as that of a dashboard or a runbook, or "". It must be of
	// http or https. It is called with the whole notice, and can use Notice.Kind and Notice.Cause. If it panics, the
	// notice has no link. Default: none.
	Link func(Notice) string

	// Window is the time after the first notice of a cause in which further letters of the cause are counted. Then one
	// notice has their number, if there are any, and the next Window begins. A cause without a letter for a whole Window
	// is new again. Default: 1 h.
	Window time.Duration
	// Settle is how long a state must be over before its notice of StatusResolved. A state that begins again before goes
	// on. It is at least 4 times Poll. Default: 1 min.
	Settle time.Duration
	// MaxNew is the number of notices of StatusNew of one kind within a minute, of all instances together. Further ones
	// are counted by a notice of kind ManyNotices. Default: 10.
	MaxNew int
	// Threshold is the number of letters of a cause that wait, from which a notice is sent. Default: 100. Below 0: never.
	Threshold int
	// OldestAge is the age of the letter that waits longest from which a notice is sent. Default: 24 h. Below 0: never.
	OldestAge time.Duration
	// Poll is how often the store of letters, the campaigns and the guards are looked at. Of the instances that share a DB
	// one reads the letters and campaigns. Default: 15 s.
	Poll time.Duration

	// GiveUp is how long after its making a notice is sent again to a Sink that refuses it. Default: 1 h.
	GiveUp time.Duration
	// QueueSize is the number of notices that wait for one Sink. Further ones are dropped: the next notice has their
	// number as Missed, and the log a line. Default: 100.
	QueueSize int
	// CloseTimeout is how long a router that closes waits for notices that are being sent. Default: 5 s.
	CloseTimeout time.Duration

	// Shared: Service names the service in DB and in notices. Privacy masks secrets in the texts of notices, and in the errors
	// of sinks. Logger receives a line when a Sink begins to refuse, and when it accepts again. Default: those of the
	// spillway.Config that Observe is called with.
	settings.Shared
}

func (c *Config) setDefaults() {
	if c.Instance == "" {
		host, _ := os.Hostname() // without a name there is the process's id
		c.Instance = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	c.Window = cmp.Or(c.Window, time.Hour)
	c.Poll = cmp.Or(c.Poll, 15*time.Second)
	c.Settle = cmp.Or(c.Settle, max(time.Minute, 4*c.Poll))
	c.MaxNew = cmp.Or(c.MaxNew, 10)
	c.Threshold = cmp.Or(c.Threshold, 100)
	c.OldestAge = cmp.Or(c.OldestAge, 24*time.Hour)
	c.GiveUp = cmp.Or(c.GiveUp, time.Hour)
	c.QueueSize = cmp.Or(c.QueueSize, 100)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 5*time.Second)
	if c.Kinds == nil {
		c.Kinds = Kinds
	}
}

func (c *Config) validate() error {
	if len(c.Sinks) == 0 {
		return errors.New("notify: Config.Sinks is empty: give at least one, such as notify.Slog(slog.Default())")
	}
	for i, sink := range c.Sinks {
		if sink == nil {
			return fmt.Errorf("notify: Config.Sinks[%d] is nil: check the error of webhook.New, or leave it out", i)
		}
	}
	for _, kind := range c.Kinds {
		if !slices.Contains(Kinds, kind) {
			return fmt.Errorf("notify: Config.Kinds has %q: use the constants of package notify",
				boundedtext.Text(string(kind), 40))
		}
	}
	for field, d := range map[string]time.Duration{"Window": c.Window, "Poll": c.Poll, "Settle": c.Settle,
		"GiveUp": c.GiveUp, "CloseTimeout": c.CloseTimeout} {
		if d < time.Millisecond {
			return fmt.Errorf("notify: Config.%s is %s: it must be at least 1ms", field, d)
		}
	}
	if c.Settle < 4*c.Poll {
		return fmt.Errorf("notify: Config.Settle is %s, and Poll %s: Settle must be at least 4 times Poll, or a state "+
			"would end between two looks", c.Settle, c.Poll)
	}
	if c.MaxNew < 1 || c.QueueSize < 1 || c.QueueSize > 100_000 {
		return fmt.Errorf("notify: Config.MaxNew (%d) must be at least 1, and QueueSize (%d) 1 to 100,000", c.MaxNew,
			c.QueueSize)
	}
	return nil
}

// pace is what an instance does at which pace.
type pace struct {
	round  time.Duration // the least time between two rounds
	sweep  time.Duration // between two looks for what is due
	lease  time.Duration // of what the instance sends
	answer time.Duration // in which the database must answer
	retry  time.Duration // before the second attempt at a sink
}

var paces = pace{round: time.Second, sweep: 5 * time.Second, lease: 30 * time.Second, answer: 5 * time.Second,
	retry: time.Second}
