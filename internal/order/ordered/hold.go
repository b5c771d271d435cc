package ordered

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
)

// held is the wait of a message whose sequence stands until a person decides.
const held = -1

// holds reports whether the sequence of a message stands, in place of a letter. A person cannot help a message that is
// invalid or has expired, and one without a key has none behind it.
func (p *Part) holds(c *chain.Call, d *sequence.Delivery, o chain.Outcome) bool {
	if !p.config.Hold || o.Next == chain.Done || c.Nacked() || c.Claimed() || c.Left(o) || c.Acked() || !d.IsKeyed() {
		return false
	}
	v := attempts.Of(p.config.Classifier, o.Why).Verdict
	return v.Class != classify.ClassInvalid && v.Class != classify.ClassDiscard && v.Reason != classify.ReasonExpired &&
		v.Reason != classify.ReasonMaxHops
}

// hold parks the message with its failure. When it is released it has its delays again, but for the first.
func (p *Part) hold(c *chain.Call, d *sequence.Delivery, why error) chain.Outcome {
	failure := attempts.Of(p.config.Classifier, why)
	c.Restore()
	placed := p.place(c, d, failure, func() *message.Message {
		return p.config.Inside.ForStage(c.Original(), failure, 1, time.Now(), time.Time{})
	}, held)
	if placed.Next == chain.Done {
		topic, handler, class := message.SubscribeTopicFromCtx(c.Ctx), message.HandlerNameFromCtx(c.Ctx),
			failure.Verdict.Class.String()
		if line, due := logging.SequenceHeld.At(p.config.Logger, topic, handler, class); due {
			line.Write(p.config.Inside.Cause(failure.Err),
				logging.Fields{logging.Topic: topic, logging.Handler: handler,
					logging.Class: class, logging.Reason: attempts.Reason(failure.Verdict), logging.MessageID: c.Msg.UUID})
		}
	}
	return placed
}

// decided is the end of a message by what a person decided.
func decided(row *sequence.Row) error {
	text := fmt.Sprintf("%s decided to %s it: %s", row.By, row.Decision, row.Why)
	err := errors.New("ordered: " + text)
	if row.Decision == sequence.Discard {
		return classify.Discard(err)
	}
	return classify.Permanent(err, classify.Reason(classify.ReasonSkipped), classify.Description(text))
}
