package wmamqp

import (
	"fmt"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
)

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
		size += tableSize(p.Headers)
		for name := range p.Headers {
			if len(name) > maxShort {
				return fmt.Errorf("wmamqp: the header name %.40q… is longer than AMQP's %d bytes: %w", name, maxShort,
					classify.ErrRefused)
			}
		}
	}
	if frameMax > 0 && size > frameMax-queueAdds {
		return fmt.Errorf("wmamqp: headers and properties are %d bytes and must fit into one frame of %d, less %d for what a "+
			"queue adds: %w", size, frameMax, queueAdds, classify.ErrTooLarge)
	}
	return nil
}

func tableSize(table amqp091.Table) int {
	size := 4
	for name, value := range table {
		size += 1 + len(name) + fieldSize(value)
	}
	return size
}

// fieldSize is how many bytes appendField appends.
func fieldSize(value any) int {
	switch v := value.(type) {
	case bool, uint8, int8:
		return 1 + 1
	case int16:
		return 1 + 2
	case int, int32, float32:
		return 1 + 4
	case amqp091.Decimal:
		return 1 + 1 + 4
	case int64, float64, time.Time:
		return 1 + 8
	case string:
		return 1 + 4 + len(v)
	case []byte:
		return 1 + 4 + len(v)
	case []any:
		size := 1 + 4
		for _, element := range v {
			size += fieldSize(element)
		}
		return size
	case amqp091.Table:
		return 1 + tableSize(v)
	}
	return 1 // nil
}
