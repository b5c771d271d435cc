package wmamqp

import (
	"errors"
	"maps"
	"strings"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/poison"
)

// Marshaler reads every AMQP message and writes it back as it was. It also works with watermill-amqp's own subscriber
// and publisher. The zero value is ready to use. It is safe for concurrent use.
//
//   - A header that is no string becomes text in metadata: numbers, booleans, times in RFC 3339, tables and arrays as
//     JSON, bytes as they are or in base64. KeyHeaders carries its type. Marshal writes the header with its type if the
//     text is unchanged, and as a string if it was changed.
//   - The producer's properties (content type and encoding, correlation id, reply-to, priority, message id, timestamp,
//     type, app id) are carried too, and written back on the message with the same id.
//   - KeyHeaders is trusted in messages that this process read from AMQP and in those that Spillway publishes. In any
//     other message it is dropped, and the headers are text.
//   - What a broker adds to a delivery, as the x-delivery-count of a quorum queue, is neither read nor written.
//   - An expiration and a user id are never written. A reply-to of
//     amq.rabbitmq.reply-to, for which the broker would close the channel, becomes metadata x-amqp-kept-reply-to.
//   - Delivery is always persistent.
//
// AMQP has no nil body: an empty payload arrives as an empty one.
type Marshaler struct {
	// Inner is an application's own marshaler. A message that it cannot read, by an error or a panic, is marked with
	// poison.MarkUnreadable. It has the body as its payload and its headers as text, and a poison.Queue dead-letters
	// it. Marshaler changes nothing of what Inner reads and writes, but delivery is persistent. Publish letters without
	// Inner. Default: none.
	Inner amqp.Marshaler
	// IDHeader is the header with the message's id. A message without it has its message id property as its id, and
	// without both an empty one. Default: watermill-amqp's _watermill_message_uuid.
	IDHeader string
}

var _ amqp.Marshaler = Marshaler{}

// errCancelled is returned to watermill-amqp's subscriber when the broker ended its consumer, for example because the
// queue was deleted: it would take the zero deliveries of the closed channel for messages, without end.
var errCancelled = errors.New("wmamqp: the broker cancelled the consumer: its queue was deleted, or a message was not " +
	"settled within the consumer_timeout")

// literal is put before the names of metadata that would mean something else as the name of a header, and before
// names that start so already.
const literal = "x-spillway-literal-"

// What a quorum queue adds from the second delivery on: the returns that count, and from RabbitMQ 4.3 on all of them.
const (
	deliveryCount = "x-delivery-count"
	acquiredCount = "x-acquired-count"
)

func (m Marshaler) idHeader() string {
	if m.IDHeader != "" {
		return m.IDHeader
	}
	return amqp.DefaultMessageUUIDHeaderKey
}

// special reports whether a header of this name, literal or not, is more than a header: the id, our own for long names,
// or one of the two in which RabbitMQ looks for further queues to route the message to. A letter must not arrive there.
func (m Marshaler) special(name string) bool {
	for {
		rest, found := strings.CutPrefix(name, literal)
		if !found {
			return name == m.idHeader() || name == "CC" || name == "BCC" || name == longNames
		}
		name = rest
	}
}

// Unmarshal reads a delivery. Its only error is for a delivery that is none: see errCancelled. The payload shares the
// body's bytes.
func (m Marshaler) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	if d.Acknowledger == nil && d.DeliveryTag == 0 && d.ConsumerTag == "" && d.Headers == nil && d.Body == nil {
		return nil, errCancelled
	}
	d.Headers = sentHeaders(d.Headers)
	if m.Inner == nil {
		return m.read(&d), nil
	}
	var msg *message.Message
	err := safecall.Call("wmamqp: Marshaler.Inner", func() (err error) {
		if msg, err = m.Inner.Unmarshal(d); err == nil && msg == nil {
			err = errors.New("wmamqp: Marshaler.Inner returned neither a message nor an error")
		}
		return err
	})
	if err != nil {
		msg = m.read(&d)
		poison.MarkUnreadable(msg, err)
		return msg, nil
	}
	return msg.Copy(), nil // with ack channels, whatever made it
}

// sentHeaders are headers without what the broker added.
func sentHeaders(headers amqp091.Table) amqp091.Table {
	sent := headers
	for name, value := range headers {
		if !chain.Added(name, text(value)) {
			continue
		}
		if len(sent) == len(headers) {
			sent = maps.Clone(headers)
		}
		delete(sent, name)
	}
	return sent
}

// read makes a message of anything.
func (m Marshaler) read(d *amqp091.Delivery) *message.Message {
	id := text(d.Headers[m.idHeader()])
	if id == "" {
		id = d.MessageId
	}
	msg := message.NewMessage(id, d.Body)
	msg.Metadata = make(message.Metadata, len(d.Headers)+1)
	carry := carried{properties: propertiesOf(d)}
	for name, value := range d.Headers {
		readable, isText := value.(string)
		switch name {
		case KeyHeaders: // a producer's, of all names: it is carried too
			isText = false
		case m.idHeader():
		case longNames:
			if m.unpackNames(value, msg.Metadata) {
				continue
			}
			fallthrough
		default:
			if !isText {
				readable = text(value)
			}
			name = m.metadataName(name, d.Headers)
			msg.Metadata[name] = readable
			name = m.headerName(name)
		}
		if !isText {
			if carry.headers == nil {
				carry.headers = amqp091.Table{}
			}
			carry.headers[name] = value
		}
	}
	if len(carry.headers) > 0 || len(carry.properties) > 0 {
		carry.id = hashOf(id)
		msg.Metadata[KeyHeaders] = carry.encode()
	}
	return msg
}

// Marshal writes a message. Metadata whose name is longer than AMQP's 255 bytes goes into one header, from which
// Unmarshal reads it. Whether all of it fits into one frame is for the publisher to find out.
func (m Marshaler) Marshal(msg *message.Message) (amqp091.Publishing, error) {
	if msg == nil {
		return amqp091.Publishing{}, errors.New("wmamqp: cannot marshal a nil message")
	}
	p, err := amqp091.Publishing{}, error(nil)
	if m.Inner == nil {
		p, err = m.write(msg)
	} else {
		err = safecall.Call("wmamqp: Marshaler.Inner", func() (err error) { p, err = m.Inner.Marshal(msg); return err })
	}
	p.DeliveryMode = amqp091.Persistent
	return p, err
}

func (m Marshaler) write(msg *message.Message) (amqp091.Publishing, error) {
	p := amqp091.Publishing{Body: msg.Payload, Headers: make(amqp091.Table, len(msg.Metadata)+1)}
	var long []string
	carry, known := decodeCarried(msg.Metadata[KeyHeaders])
	if known && !carry.sealed && !chain.IsReturning(msg.Context()) { // of a producer, on whatever broker
		carry = carried{}
	}
	if carry.id == hashOf(msg.UUID) {
		carry.writeTo(&p)
	}
	for key, value := range msg.Metadata {
		if key == KeyHeaders && known || chain.Added(key, value) {
			continue
		}
		name := m.headerName(key)
		if len(name) > maxShort {
			long = append(long, key)
			continue
		}
		p.Headers[name] = value
		if typed, ok := carry.headers[name]; ok && text(typed) == value {
			p.Headers[name] = typed
		}
	}
	p.Headers[m.idHeader()] = msg.UUID
	if typed, ok := carry.headers[m.idHeader()]; ok && text(typed) == msg.UUID {
		p.Headers[m.idHeader()] = typed
	}
	if own, ok := carry.headers[KeyHeaders]; ok {
		p.Headers[KeyHeaders] = own
	}
	if p.ReplyTo == directReplyTo {
		p.ReplyTo, p.Headers[keptReplyTo] = "", directReplyTo
	}
	if len(long) > 0 {
		p.Headers[longNames] = packNames(msg.Metadata, long)
	}
	return p, nil
}

// headerName is the name of the header for metadata of this name.
func (m Marshaler) headerName(key string) string {
	if m.special(key) {
		return literal + key
	}
	return key
}

// metadataName is the reverse, but that a producer's CC is metadata of that name too, and takes it first.
func (m Marshaler) metadataName(name string, all amqp091.Table) string {
	key, found := strings.CutPrefix(name, literal)
	if !found || !m.special(key) {
		return name
	}
	if _, taken := all[key]; taken && (key == "CC" || key == "BCC") {
		return name
	}
	return key
}
