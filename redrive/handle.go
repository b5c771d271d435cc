package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
	"github.com/watermill-spillway/spillway/poison"
)

// outcome is what became of a message of a dead-letter topic.
type outcome int

const (
	givenBack outcome = iota
	redriven
	quarantined
	refused
	parked
	failed
	closed // sealed, and it does not open
)

var (
	errNotChosen = errors.New("redrive: the filter does not choose this letter")
	errGivenBack = errors.New("redrive: the message is requeued: its context ended")
)

func (h *Handler) handle(ctx context.Context, msg *message.Message, topic string) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return givenBack, fmt.Errorf("%w: %w", errGivenBack, err)
	}
	l, err := poison.Decode(msg)
	if err != nil {
		return h.park(ctx, msg, original(msg), topic, parked, err)
	}
	l.DeadLetterTopic = topic
	if !h.Filter.Matches(l) {
		return h.park(ctx, msg, l, topic, parked, errNotChosen)
	}
	if h.spent(l) {
		return h.quarantine(ctx, msg, l, topic)
	}
	target, err := h.target(l)
	if err != nil {
		logging.RedriveRefused.Write(h.Logger, err, fields(l, target))
		out, parking := h.park(ctx, msg, l, topic, refused, err)
		if parking == nil {
			h.onRefused(ctx, l, target)
		}
		return out, parking
	}
	waits, done := graceful.Waits(ctx)
	defer done()
	if !h.rested(waits, l) {
		return givenBack, fmt.Errorf("%w: %w", errGivenBack, waits.Err())
	}
	opened, err := l.Open(ctx, h.Seal)
	if err != nil {
		return h.closed(ctx, msg, l, topic, err)
	}
	if err := h.turn(waits); err != nil {
		return givenBack, fmt.Errorf("%w: %w", errGivenBack, err)
	}
	err = h.bring(ctx, l, opened, target)
	if err == nil {
		h.onRedrive(ctx, l, target)
		return redriven, nil
	}
	if ctx.Err() != nil {
		return givenBack, fmt.Errorf("%w: %w", errGivenBack, errors.Join(ctx.Err(), err))
	}
	return h.park(ctx, msg, l, topic, failed, err)
}

// rested waits until the letter has rested for MinWait, and reports whether ctx lasted that long. A time in the future,
// of another clock or a forger, counts as now.
func (h *Handler) rested(ctx context.Context, l poison.Letter) bool {
	since := l.Failure.LastFailedAt
	if l.Redrive.At.After(since) {
		since = l.Redrive.At
	}
	pause := min(h.minWait-time.Since(since), h.minWait)
	return pause <= 0 || wait.For(ctx, pause)
}

// turn waits for a free place, which bring gives back, and for the rate.
func (h *Handler) turn(ctx context.Context) error {
	select {
	case h.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := h.wait(ctx)
	if err != nil {
		<-h.busy
	}
	return err
}

func (h *Handler) bring(ctx context.Context, l, opened poison.Letter, target string) error {
	defer func() { <-h.busy }()
	_, err := h.redrive(ctx, l, opened, target)
	return err
}
