package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

// closedFor is how long a message is held before it is requeued because the keys are unavailable: some brokers
// deliver it again at once.
const closedFor = time.Second

// closed is what becomes of a message of a dead-letter topic that does not open. While the keys are unavailable it
// stays where it is.
func (h *Handler) closed(ctx context.Context, msg *message.Message, l poison.Letter, topic string,
	err error) (outcome, error) {
	if ctx.Err() != nil || errors.Is(err, seal.ErrUnavailable) {
		logging.RedriveKeysAway.Write(h.Logger, err, fields(l, topic))
		if h.minWait > 0 { // with a router; a drain ends
			wait.For(ctx, closedFor)
		}
		return givenBack, fmt.Errorf("redrive: the message is requeued: %w", err)
	}
	logging.RedriveClosed.Write(h.Logger, err, fields(l, topic))
	return h.park(ctx, msg, l, topic, closed, err)
}

func (d *drain) open(ctx context.Context, l *letters.Letter) (poison.Letter, error) {
	if d.Seal == nil {
		return d.store.Open(ctx, *l)
	}
	opened, err := d.store.Inside().OpenWith(ctx, d.Seal, *l)
	return opened.Letter, err
}

// closed is what becomes of a letter of a Store that does not open: it stays as it is, and the drain goes on, or ends
// if the keys are unavailable.
func (d *drain) closed(ctx context.Context, b *batch, l *letters.Letter, topic string, err error) {
	if ctx.Err() != nil || errors.Is(err, seal.ErrUnavailable) {
		d.release(b, l)
		d.stop(err)
		return
	}
	logging.RedriveClosed.Write(d.Logger, err, fields(l.Letter, topic))
	d.release(b, l)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.considered[l.Seq] = struct{}{}
	d.report.Taken--
	d.report.Sealed++
	if d.report.SealError == nil {
		d.report.SealError = err
	}
}
