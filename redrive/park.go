package redrive

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
)

// park publishes the message unchanged to the parked topic.
func (h *Handler) park(ctx context.Context, msg *message.Message, l poison.Letter, topic string, out outcome,
	why error) (outcome, error) {
	l.DeadLetterTopic = topic
	h.makeReady(topic)
	_, err := h.publish(ctx, observe.Park, h.parking, l, l.Original, h.naming.ParkedTopic(topic), nil,
		func(int, string) *message.Message {
			return msg.Copy()
		})
	if err != nil {
		return givenBack, errors.Join(why, err)
	}
	h.onParked(ctx, l, why)
	return out, nil
}

// quarantine publishes the letter with the reason that says why it comes back no more, and all else of its story. One
// that is too large with it goes as it is.
func (h *Handler) quarantine(ctx context.Context, msg *message.Message, l poison.Letter,
	topic string) (outcome, error) {
	build := msg.Copy
	if _, ours := msg.Metadata[poison.KeyFailureClass]; !ours { // of Watermill's PoisonQueue: our keys tell it all again
		told := l
		told.Failure.Reason = classify.ReasonMaxRedrives
		build = told.Encode
	}
	h.makeReady(topic)
	_, err := h.publish(ctx, observe.Park, h.parking, l, l.Original, h.naming.QuarantineTopic(topic), nil,
		func(tooLarge int, _ string) *message.Message {
			if tooLarge > 0 {
				return msg.Copy()
			}
			q := build()
			q.Metadata.Set(poison.KeyFailureReason, classify.ReasonMaxRedrives)
			return q
		})
	if err != nil {
		return givenBack, err
	}
	h.onQuarantine(ctx, l)
	return quarantined, nil
}
