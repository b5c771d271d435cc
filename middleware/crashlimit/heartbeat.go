package crashlimit

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

const (
	statementTimeout = 2 * time.Second
	sweepEvery       = time.Hour
	keepMarks        = 30 * 24 * time.Hour
)

// run beats until ctx ends.
func (p *process) run(ctx context.Context) {
	defer close(p.done)
	ticker := time.NewTicker(p.limit.config.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.settled:
			p.pay(ctx, p.limit.config.quietAfter)
			continue
		case <-ticker.C:
		}
		err := p.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if mode := p.mode(); err == nil || mode == marking { // an outage is no clean run
			p.limit.turn(mode)
		}
		if err == nil && p.pay(ctx, p.limit.config.quietAfter) {
			p.sweep(ctx)
		}
		p.note(ctx, err)
	}
}

// round shows that this process lives, and looks at the others. Each is a short statement of its own.
func (p *process) round(ctx context.Context) error {
	config := &p.limit.config
	if err := p.live(ctx); err != nil {
		return err
	}
	var rows []row
	err := p.do(ctx, func(ctx context.Context) (err error) {
		rows, err = config.store.others(ctx, p.id)
		return err
	})
	if err != nil {
		return err
	}
	now := time.Now()
	stale, forgotten := p.detector.look(now, rows)
	p.limit.news.publish(rows)
	for _, r := range stale {
		lost := false
		err = errors.Join(err, p.do(ctx, func(ctx context.Context) (err error) {
			lost, err = config.store.lose(ctx, r.id, r.beats)
			return err
		}))
		if lost {
			p.detector.lost(now, r.id)
		}
	}
	for _, r := range forgotten {
		err = errors.Join(err, p.do(ctx, func(ctx context.Context) error { return config.store.forget(ctx, r.id) }))
	}
	return err
}

// live registers this process, or shows that it still lives. A process that was suspended for long may have been
// forgotten.
func (p *process) live(ctx context.Context) error {
	config := &p.limit.config
	if p.registered {
		var there bool
		err := p.do(ctx, func(ctx context.Context) (err error) {
			there, err = config.store.beat(ctx, p.id)
			return err
		})
		if err != nil || there {
			return err
		}
	}
	node, _ := os.Hostname()
	err := p.do(ctx, func(ctx context.Context) error {
		return config.store.register(ctx, registration{p.id, boundedtext.Text(node, 128), config.Heartbeat})
	})
	p.registered = p.registered || err == nil
	return err
}

func (p *process) do(ctx context.Context, statement func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, max(p.limit.config.store.patience(), p.limit.config.Heartbeat))
	defer cancel()
	return statement(ctx)
}

// note takes in how a round went.
func (p *process) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if l := p.limit; err != nil {
		l.outage.began(l.config.Logger, err)
	} else if !p.behind {
		l.outage.answered(l.config.Logger)
	}
}

// pay removes the marks that are due, and reports whether it could. Those of refused messages are due when they were
// acked for as long as keep.
func (p *process) pay(ctx context.Context, keep time.Duration) bool {
	config := &p.limit.config
	for m, w := range p.limit.removals.due(time.Now(), keep) {
		if err := p.do(ctx, func(ctx context.Context) error { return config.store.clear(ctx, m, w) }); err != nil {
			p.behind = true
			return false // at the next beat
		}
		p.limit.removals.done(m, w)
	}
	p.behind = false
	return true
}

// sweep removes, now and then, the marks of messages that never came again.
func (p *process) sweep(ctx context.Context) {
	if time.Since(p.swept) < sweepEvery {
		return
	}
	p.swept = time.Now()
	for more := true; more; {
		err := p.do(ctx, func(ctx context.Context) (err error) {
			more, err = p.limit.config.store.sweep(ctx, keepMarks)
			return err
		})
		if err != nil {
			logging.CrashMarksKept.Write(p.limit.config.Logger, err, nil)
			return
		}
	}
}
