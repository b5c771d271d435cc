package notify

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/internal/series"
	"github.com/watermill-spillway/spillway/observe/notify/internal/ledger"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Config configures a Notifier. Only Sinks is required.
type Config struct {
	// Sinks receive each notice, each at its own pace: webhook.New, or a function, which can pass by a Notice.Kind.
	Sinks []Sink
	// DB is the database in which the instances of a service agree who sends a notice, in the table spillway_notices.
	// Default: the DB of the spillway.Config that Observe is called with. If that has none, each process sends notices
	// of its own.
	DB *sql.DB
	// Link returns an address that stands in the notice, such as that of a dashboard or a runbook, or "". It must be of
	// http or https. It is called with the whole notice, and can use Notice.Kind and Notice.Cause. If it panics, the
	// notice has no link. Default: none.
	Link func(Notice) string

	// Threshold is the number of letters of a cause that wait, from which a notice is sent. Default: 100. Below 0:
	// never.
	Threshold int
	// OldestAge is the age of the letter that waits longest from which a notice is sent. Default: 24 h. Below 0: never.
	OldestAge time.Duration

	// Service names the service in DB and in notices. Default: that of the spillway.Config that Observe is called with.
	Service string
	// Shared: Privacy masks secrets in the texts of notices, and in the errors of sinks. Logger receives a line when a
	// Sink begins to refuse, and when it accepts again. Default: those of the spillway.Config that Observe is called
	// with.
	observe.Shared
}

func (c *Config) setDefaults() {
	c.Threshold = cmp.Or(c.Threshold, 100)
	c.OldestAge = cmp.Or(c.OldestAge, 24*time.Hour)
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
	window time.Duration // in which the letters of a cause are counted, and after which it is new again
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
	retry: time.Second, poll: 15 * time.Second, window: time.Hour, settle: time.Minute, giveUp: time.Hour,
	end: 5 * time.Second, most: 10, queue: 100}

var _ spillway.Observer = (*Notifier)(nil)

// Observe is called by spillway.New, for a Notifier in Config.Observers. It puts the hooks of the Notifier before those
// of config. The DB, Service and Logger of config are the Notifier's too, unless its own Config has them. A Notifier
// has one channel.
func (n *Notifier) Observe(config *spillway.Config) error {
	if !n.observes.CompareAndSwap(false, true) {
		return errors.New("notify: Observe was called before, and everything would count twice: name a Notifier in the " +
			"Config.Observers of one channel; another channel needs a Notifier of its own")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.config.DB == nil {
		n.config.DB = config.DB
	}
	n.config.Service = cmp.Or(n.config.Service, config.Service)
	if n.config.Logger == nil {
		n.config.Logger = config.Logger
	}
	if n.config.Privacy == nil {
		n.config.Privacy = config.Privacy
	}
	queue := &config.Queue.Hooks
	queue.OnDeadLetter = series.Before(func(_ context.Context, l poison.Letter) { n.deadLetter(l) }, queue.OnDeadLetter)
	queue.OnUnplaced = series.Before2(func(_ context.Context, l poison.Letter, err error) { n.unplaced(l, err) },
		queue.OnUnplaced)
	if config.Breaker != nil {
		config.Breaker.Hooks.OnChange = series.Before1(n.breakerChanged, config.Breaker.Hooks.OnChange)
	}
	return nil
}

// deadLetter counts a letter. It must be quick, and never waits.
func (n *Notifier) deadLetter(l poison.Letter) {
	first, last := l.Failure.FirstFailedAt, l.Failure.LastFailedAt
	if last.IsZero() {
		last = time.Now()
	}
	if first.IsZero() {
		first = last
	}
	cause := letters.CauseOf(l)
	n.report(NewCause, cause, 1, first, last, func() about { return n.aboutLetter(cause, l, l.Failure.Description) })
}

func (n *Notifier) unplaced(l poison.Letter, err error) {
	now := time.Now()
	n.report(Unplaced, l.Origin.Topic+"\n"+l.Origin.Handler, 1, now, now, func() about {
		return n.aboutLetter("", l, boundedtext.Error(err, maxMasked))
	})
}

func (n *Notifier) aboutLetter(cause string, l poison.Letter, description string) about {
	return about{Cause: cause, Topic: l.Origin.Topic, Handler: l.Origin.Handler, Class: l.Failure.Class.String(),
		Reason: l.Failure.Reason, Description: description}
}

// breakerChanged counts an opening. Its end shows when no instance says any more that the breaker is open.
func (n *Notifier) breakerChanged(c breaker.Change) {
	if c.To != circuit.Open && c.To != circuit.Frozen || c.From == circuit.Ramping ||
		c.From == circuit.HalfOpen {
		return
	}
	now := time.Now()
	n.report(BreakerOpen, c.Handler+"\n"+c.Scope, 1, now, now, func() about {
		text := c.Actor
		if c.Cause != nil {
			text = boundedtext.Error(c.Cause, maxMasked)
		}
		return about{Handler: c.Handler, Subject: c.Scope, Reason: c.Reason, Description: text}
	})
}

// report counts what happened, and has the next round begin.
func (n *Notifier) report(kind Kind, subject string, times int64, first, last time.Time, say func() about) {
	n.pending.add(ledger.Key{Kind: string(kind), Subject: subject}, times, first, last, func() string {
		return n.text(say())
	})
}

// holder is another one for each Notifier: two of them in a process must not end each other's leases.
func (n *Notifier) holder() string { return rand.Text() }
