package notify

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/observe/notify/internal/ledger"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

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
	hooks := &config.Queue.Hooks
	placed := hooks.OnDeadLetter
	hooks.OnDeadLetter = func(ctx context.Context, l poison.Letter) {
		n.deadLetter(l)
		if placed != nil {
			placed(ctx, l)
		}
	}
	unplaced := hooks.OnUnplaced
	hooks.OnUnplaced = func(ctx context.Context, l poison.Letter, err error) {
		n.unplaced(l, err)
		if unplaced != nil {
			unplaced(ctx, l, err)
		}
	}
	if config.Breaker != nil {
		hooks := &config.Breaker.Hooks
		theirs := hooks.OnChange
		hooks.OnChange = func(c breaker.Change) {
			n.breakerChanged(c)
			if theirs != nil {
				theirs(c)
			}
		}
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
	if c.To != breaker.Open && c.To != breaker.Frozen || c.From == breaker.Ramping ||
		c.From == breaker.HalfOpen {
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
	if n.wants(kind) {
		n.pending.add(ledger.Key{Kind: string(kind), Subject: subject}, times, first, last, func() string {
			return n.text(say())
		})
	}
}

// holder is another one for each Notifier: two of them in a process must not end each other's leases.
func (n *Notifier) holder() string { return rand.Text() }
