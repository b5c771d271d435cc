package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
)

// quiet is how long a consumer has for what it holds before it is asked to give it back.
const quiet = time.Second

// outstanding is how many messages are not acked. Where the backlog does not show what a consumer holds, 0 is certain
// only of one that has ended: when it has been quiet it is stopped, and started again if it gave something back.
func (s *history) outstanding(ctx context.Context) (int, error) {
	n, err := s.Backlog(ctx)
	if err != nil || s.Holders == nil {
		return n, err
	}
	if n > 0 {
		s.quietSince = time.Time{}
		return n, nil
	}
	if s.quietSince.IsZero() {
		s.quietSince = time.Now()
	}
	if time.Since(s.quietSince) < quiet {
		return 1, nil
	}
	s.quietSince = time.Time{}
	if err := s.end(); err != nil {
		return 0, err
	}
	if n, err = s.requeued(ctx); err != nil || n == 0 {
		return 0, err
	}
	return n, s.begin()
}

// requeued is the backlog after the broker has noticed that the consumer is gone.
func (s *history) requeued(ctx context.Context) (int, error) {
	for {
		holders, err := s.Holders(ctx)
		if err := errors.Join(err, context.Cause(ctx)); err != nil {
			return 0, err
		}
		if holders == 0 {
			return s.Backlog(ctx)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// settle waits until nothing is on its way any more: what total deliveries brought about is in the database.
func (s *history) settle(ctx context.Context, what string, total int) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	return webhooks.Progress(ctx, os.Stdout, what, total, func() int {
		n, err := s.outstanding(ctx)
		if err := errors.Join(err, s.alive()); err != nil {
			fail(err)
			return 0
		}
		return max(total-n, 0)
	})
}

// reach waits until so many events are stored. It fails when there will never be so many.
func (s *history) reach(ctx context.Context, want int) (stored int, err error) {
	for next := time.Now().Add(quiet); ; time.Sleep(2 * time.Millisecond) {
		idle := false
		if time.Now().After(next) { // Kafka takes a while to tell
			n, err := s.outstanding(ctx)
			if err != nil {
				return 0, fmt.Errorf("backlog: %w", err)
			}
			idle, next = n == 0, time.Now().Add(quiet/2)
		}
		stored, err := applied(s.db)
		switch err := errors.Join(err, context.Cause(ctx), s.alive()); {
		case err != nil:
			return 0, err
		case stored >= want:
			return stored, nil
		case idle:
			return 0, errors.Join(s.tooLate(stored), webhooks.Table(ctx, os.Stdout, "Dead letters by cause", s.letters))
		}
	}
}
