package wmamqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
)

// directReplyTo is a reply-to that the broker takes only on a channel that consumes the answers, and else closes the
// channel. On its way the broker replaces it, so it arrives only if it was forged.
const directReplyTo = "amq.rabbitmq.reply-to"

// keptReplyTo is the metadata, and the header, of a reply-to that cannot be published as one.
const keptReplyTo = "x-amqp-kept-reply-to"

// longNames is the header with all metadata whose names are longer than AMQP's: an array of names and values by turns.
const longNames = "x-spillway-long-names"

// messageRefused is the error for a message that the broker answered by closing its channel, because of what it
// carries.
type messageRefused struct {
	to     address
	reason *amqp091.Error
}

func (e *messageRefused) Error() string {
	return fmt.Sprintf("wmamqp: %s: the broker closed the channel for what the message carries: %v", e.to, e.reason)
}

// Unwrap reports what a poison.Queue must know: less of the message would be taken.
func (e *messageRefused) Unwrap() []error {
	if strings.Contains(e.reason.Reason, "message size") {
		return []error{e.reason, classify.ErrTooLarge}
	}
	return []error{e.reason, classify.ErrRefused}
}

// isLetter reports whether a message is a dead letter or waits in a stage, as far as its metadata can be trusted.
func isLetter(msg *message.Message) bool {
	return msg.Metadata[poison.KeyFailureClass] != "" || msg.Metadata[poison.KeyRetryStage] != ""
}

// forLetter takes from a publishing what an application's marshaler may have set and a letter must not have: an
// expiration, copies to other queues, delivery from memory, and the properties that the broker takes on certain
// channels alone.
func forLetter(p *amqp091.Publishing) {
	p.DeliveryMode, p.Expiration, p.UserId = amqp091.Persistent, "", ""
	if p.ReplyTo == directReplyTo {
		p.ReplyTo = ""
	}
	_, cc := p.Headers["CC"]
	_, bcc := p.Headers["BCC"]
	if cc || bcc {
		p.Headers = maps.Clone(p.Headers)
		delete(p.Headers, "CC")
		delete(p.Headers, "BCC")
	}
}

// packNames adds what has a long name to an array of names and values. Equal messages give equal arrays.
func packNames(metadata message.Metadata, names []string) []any {
	slices.Sort(names)
	packed := make([]any, 0, 2*len(names))
	for _, name := range names {
		packed = append(packed, name, metadata[name])
	}
	return packed
}

// unpackNames reads what packNames wrote, and reports whether it did: such an array has no short names.
func (m Marshaler) unpackNames(value any, to message.Metadata) bool {
	packed, ok := value.([]any)
	if !ok || len(packed) == 0 || len(packed)%2 != 0 {
		return false
	}
	for i, element := range packed {
		if s, ok := element.(string); !ok || i%2 == 0 && len(m.headerName(s)) <= maxShort {
			return false
		}
	}
	for i := 0; i < len(packed); i += 2 {
		to[packed[i].(string)] = packed[i+1].(string)
	}
	return true
}

// returnedError is the error for a message that no queue took.
type returnedError struct {
	to     address
	answer amqp091.Return
}

func (e *returnedError) Error() string {
	return fmt.Sprintf("wmamqp: %s returned the message: %d %s: declare the queue, or bind one to the exchange", e.to,
		e.answer.ReplyCode, e.answer.ReplyText)
}

// whyReturned asks for the queue of a message that was returned. RabbitMQ returns messages for a classic queue whose
// node is down, as if there were no such queue: that is a word about the broker. Of another exchange than the default
// one the queues are not known.
func (p *Publisher) whyReturned(ctx context.Context, to address, err error) error {
	if returned := (*returnedError)(nil); !errors.As(err, &returned) || to.exchange != "" {
		return err
	}
	conn, failed := p.conn.open()
	if failed != nil {
		return err
	}
	if _, failed = backlog(ctx, conn, to.key); failed != nil && isNodeDown(failed) {
		return nacked(fmt.Sprintf("wmamqp: %s returned the message, because the node of its queue is down: %v", to,
			failed))
	}
	return err
}

// isNodeDown reports whether the broker says of a queue that it is there, on a node that is not.
func isNodeDown(err error) bool {
	var answer *amqp091.Error
	return errors.As(err, &answer) && answer.Code == amqp091.NotFound &&
		strings.Contains(answer.Reason, "down or inaccessible")
}

// frameOverhead is what a frame has around its payload; the negotiated maximum includes it.
const frameOverhead = 8

// queueAdds is room for what a quorum queue adds to the headers of a delivery, its x-delivery-count. RabbitMQ sends the
// larger frame, and amqp091-go from 1.14 on closes the connection at it, each time that the message comes.
const queueAdds = 64

// checkSize refuses what the client would cut without a word or the broker would answer by closing the connection: all
// properties and headers travel in one frame. frameMax is the negotiated maximum in bytes, 0 for none.
func checkSize(p *amqp091.Publishing, frameMax int) error {
	if err := p.Headers.Validate(); err != nil {
		return fmt.Errorf("wmamqp: a header that AMQP cannot carry: %w: %w", err, classify.ErrRefused)
	}
	size := frameOverhead + 2 + 2 + 8 + 2 // class, weight, body size, flags
	for _, short := range [...]struct{ name, value string }{
		{"content type", p.ContentType}, {"content encoding", p.ContentEncoding}, {"correlation id", p.CorrelationId},
		{"reply-to", p.ReplyTo}, {"expiration", p.Expiration}, {"message id", p.MessageId}, {"type", p.Type},
		{"user id", p.UserId}, {"app id", p.AppId},
	} {
		if len(short.value) > maxShort {
			return fmt.Errorf("wmamqp: the %s has %d bytes: AMQP takes %d: %w", short.name, len(short.value), maxShort,
				classify.ErrRefused)
		}
		if short.value != "" {
			size += 1 + len(short.value)
		}
	}
	if p.DeliveryMode > 0 {
		size++
	}
	if p.Priority > 0 {
		size++
	}
	if !p.Timestamp.IsZero() {
		size += 8
	}
	if len(p.Headers) > 0 {
		for name := range p.Headers {
			if len(name) > maxShort {
				return fmt.Errorf("wmamqp: the header name %.40q… is longer than AMQP's %d bytes: %w", name, maxShort,
					classify.ErrRefused)
			}
		}
		written, ok := appendTable(nil, p.Headers, 0)
		if !ok {
			return fmt.Errorf("wmamqp: headers with tables of more than %d levels, or names in them of more than %d bytes: %w",
				maxDepth, maxShort, classify.ErrRefused)
		}
		size += len(written)
	}
	if frameMax > 0 && size > frameMax-queueAdds {
		return fmt.Errorf("wmamqp: headers and properties are %d bytes and must fit into one frame of %d, less %d for what a "+
			"queue adds: %w", size, frameMax, queueAdds, classify.ErrTooLarge)
	}
	return nil
}
