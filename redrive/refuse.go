package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
)

const maxRefusedTopics = 20

// countRefused reports the letters that the filter chooses and that may not go to their origin topic. They are not
// touched: another drain may redrive them.
func (d *drain) countRefused(ctx context.Context) (err error) {
	f := d.Filter
	f.NotTopics = append(f.NotTopics[:len(f.NotTopics):len(f.NotTopics)], d.Allow...)
	refused, err := hidden.Of(d.store).CountTopics(ctx, f)
	if err != nil {
		return fmt.Errorf("redrive: count the letters whose topics are not allowed: %w", err)
	}
	for _, n := range refused {
		d.report.Refused += n
	}
	for _, t := range inside.TopicCounts(refused).MostFirst(maxRefusedTopics) {
		d.report.refusedTopic(t.Topic, t.Letters)
		eventRedriveNotAllowed.Write(d.Logger, ErrNotAllowed,
			logging.Fields{logging.Topic: t.Topic, logging.Letters: t.Letters})
	}
	return nil
}

// park publishes the message unchanged to the parked topic.
func (h *Handler) park(ctx context.Context, msg *message.Message, l poison.Letter, topic string, out outcome,
	why error) (outcome, error) {
	l.DeadLetterTopic = topic
	h.makeReady(topic)
	_, err := h.parks(ctx, l, h.naming.ParkedTopic(topic), func(int, string) *message.Message { return msg.Copy() })
	if err != nil {
		return requeued, errors.Join(why, err)
	}
	h.onParked(ctx, l, why)
	return out, nil
}

// quarantine publishes the letter with the reason that says why it comes back no more, and all else of its story. One
// that is too large with it goes as it is.
func (h *Handler) quarantine(ctx context.Context, msg *message.Message, l poison.Letter,
	topic string) (outcome, error) {
	build := msg.Copy
	// of Watermill's PoisonQueue: our keys tell it all again
	if _, ours := msg.Metadata[poison.KeyFailureClass]; !ours {
		notified := l
		notified.Failure.Reason = classify.ReasonMaxRedrives
		build = notified.Encode
	}
	h.makeReady(topic)
	_, err := h.parks(ctx, l, h.naming.QuarantineTopic(topic), func(tooLarge int, _ string) *message.Message {
		if tooLarge > 0 {
			return msg.Copy()
		}
		q := build()
		q.Metadata.Set(poison.KeyFailureReason, classify.ReasonMaxRedrives)
		return q
	})
	if err != nil {
		return requeued, err
	}
	h.onQuarantine(ctx, l)
	return quarantined, nil
}

// parks publishes what build makes to a topic of Park, which has no rate.
func (h *Handler) parks(ctx context.Context, l poison.Letter, topic string,
	build func(tooLarge int, trace string) *message.Message) (trace string, _ error) {
	p := h.publishing(ctx, l, topic)
	p.Publisher, p.Turn = h.parking, nil
	return p.Publish(ctx, observe.Park, l, l.Original, topic, build)
}

// closedFor is how long a message is held before it is requeued because the keys are unavailable: some brokers
// deliver it again at once.
const closedFor = time.Second

// closed is what becomes of a message of a dead-letter topic that does not open. While the keys are unavailable it
// stays where it is.
func (h *Handler) closed(ctx context.Context, msg *message.Message, l poison.Letter, topic string,
	err error) (outcome, error) {
	if ctx.Err() != nil || errors.Is(err, seal.ErrUnavailable) {
		eventRedriveKeysUnavailable.Write(h.Logger, err, fields(l, topic))
		if h.minWait > 0 { // with a router; a drain ends
			timing.Wait(ctx, closedFor)
		}
		return requeued, fmt.Errorf("redrive: the message is requeued: %w", err)
	}
	logging.RedriveClosed.Write(h.Logger, err, fields(l, topic))
	return h.park(ctx, msg, l, topic, closed, err)
}

func (d *drain) open(ctx context.Context, l *letters.Letter) (poison.Letter, error) {
	if d.Seal == nil {
		return d.store.Open(ctx, *l)
	}
	opened, err := hidden.Of(d.store).OpenWith(ctx, d.Seal, *l)
	return opened.Letter, err
}

// closed is what becomes of a letter of a Store that does not open: it stays as it is, and the drain goes on, or ends
// if the keys are unavailable.
func (d *drain) closed(ctx context.Context, l *letters.Letter, topic string, err error) result {
	if ctx.Err() != nil || errors.Is(err, seal.ErrUnavailable) {
		d.stop(err)
		return result{}
	}
	logging.RedriveClosed.Write(d.Logger, err, fields(l.Letter, topic))
	return d.left(l, func(r *Report) {
		r.Sealed++
		if r.SealError == nil {
			r.SealError = err
		}
	})
}

// Redrives, letters and campaigns.
var (
	// each: See to the KMS.
	eventRedriveKeysUnavailable = logging.ErrorEvent("redrive_keys_unavailable",
		"The keys of sealed letters are unavailable; a letter is requeued")
	// each: Add the topic to `Allow`, if it is right.
	eventRedriveNotAllowed = logging.ErrorEvent("redrive_not_allowed", "Letters are not redriven, and wait")
	// each: Repair the topic, or its publisher.
	eventRedriveUnplaced = logging.ErrorEvent("redrive_unplaced", "A publisher refused a letter")
	// start: Create the topic.
	eventRedriveTopicMissing = logging.ErrorEvent("redrive_topic_missing",
		"The topics for letters that are not redriven may not exist; the letter is published there anyway")
	// each: nothing
	eventLetterTakenOver = logging.InfoEvent("letter_taken_over",
		"A letter was taken over, or arrived again, while it was worked on")
	// each: nothing
	eventLettersNotReleased = logging.InfoEvent("letters_not_released",
		"Letters were not released; they are free again when their lease is over")
)
