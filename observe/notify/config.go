package notify

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/settings"
)

// Config configures a Notifier. Only Sinks is required.
type Config struct {
	// Sinks receive each notice, each at its own pace: webhook.New, or a function.
	Sinks []Sink
	// Kinds are the kinds of notices that are sent. Default: all.
	Kinds []Kind
	// DB is the database in which the instances of a service agree who sends a notice, in the table spillway_notices.
	// Default: the DB of the spillway.Config that Observe is called with. If that has none, each process sends notices
	// of its own.
	DB *sql.DB
	// Link returns an address that stands in the notice, such as that of a dashboard or a runbook, or "". It must be of
	// http or https. It is called with the whole notice, and can use Notice.Kind and Notice.Cause. If it panics, the
	// notice has no link. Default: none.
	Link func(Notice) string

	// Window is the time after the first notice of a cause in which further letters of the cause are counted. Then one
	// notice has their number, if there are any, and the next Window begins. A cause without a letter for a whole
	// Window is new again. Default: 1 h.
	Window time.Duration
	// Threshold is the number of letters of a cause that wait, from which a notice is sent. Default: 100. Below 0:
	// never.
	Threshold int
	// OldestAge is the age of the letter that waits longest from which a notice is sent. Default: 24 h. Below 0: never.
	OldestAge time.Duration

	// Shared: Service names the service in DB and in notices. Privacy masks secrets in the texts of notices, and in the
	// errors of sinks. Logger receives a line when a Sink begins to refuse, and when it accepts again. Default: those
	// of the spillway.Config that Observe is called with.
	settings.Shared
}

func (c *Config) setDefaults() {
	c.Window = cmp.Or(c.Window, time.Hour)
	c.Threshold = cmp.Or(c.Threshold, 100)
	c.OldestAge = cmp.Or(c.OldestAge, 24*time.Hour)
	if c.Kinds == nil {
		c.Kinds = Kinds
	}
}

func (c *Config) validate() error {
	if len(c.Sinks) == 0 {
		return errors.New("notify: Config.Sinks is empty: give at least one, such as webhook.New")
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
	if c.Window < time.Millisecond {
		return fmt.Errorf("notify: Config.Window is %s: it must be at least 1ms", c.Window)
	}
	return nil
}

// pace is what a Notifier does at which pace, and how much of it.
type pace struct {
	round  time.Duration // the least time between two rounds
	sweep  time.Duration // between two looks for what is due
	lease  time.Duration // of what the instance sends
	answer time.Duration // in which the database must answer
	retry  time.Duration // before the second attempt at a sink
	poll   time.Duration // between two looks at letters, campaigns and breakers
	settle time.Duration // how long a state must be over before its end is told
	giveUp time.Duration // how long a notice is sent again to a sink that refuses it
	end    time.Duration // how long a router that closes waits for sinks
	most   int64         // notices of StatusNew of one kind within a minute, of all instances together
	queue  int           // notices that wait for one sink
}

// No user needs other paces. A state would end between two looks, if settle were less than 4 times poll. No person
// reads more than ten notices a minute, and what is older than an hour is in the summary. Kubernetes kills what takes
// longer than 30 s to end.
var paces = pace{round: time.Second, sweep: 5 * time.Second, lease: 30 * time.Second, answer: 5 * time.Second,
	retry: time.Second, poll: 15 * time.Second, settle: time.Minute, giveUp: time.Hour, end: 5 * time.Second, most: 10,
	queue: 100}
