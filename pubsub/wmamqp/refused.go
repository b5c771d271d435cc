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
