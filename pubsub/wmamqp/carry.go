package wmamqp

import (
	"crypto/rand"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"math"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// KeyHeaders is the metadata in which a message from AMQP carries what metadata cannot hold: the types of its headers
// and its properties. A message without such headers and properties has none. It is never on the wire: the Marshaler
// writes typed headers and properties from it. A message that leaves AMQP for a dead-letter store or another broker
// keeps it.
//
// Any producer can write such a value. The Marshaler trusts it only in a message that this process read from AMQP, and
// in one that Spillway itself publishes, such as a redriven message. If you mask a header's value for a dead-letter
// store, drop this value too.
const KeyHeaders = "x-amqp-headers"

// maxCarried bounds what is believed to be a carried value, in bytes: a header frame of several times the usual size.
const maxCarried = 1 << 20

const carriedVersion = 2

// seal says that this process wrote a carried value. It is the value's last bytes: a hash with a key of the process.
// The hash is truncated, so that it cannot be extended.
type seal [16]byte

var sealKey = sync.OnceValue(func() (key [32]byte) {
	_, _ = rand.Read(key[:]) // never fails
	return key
})

// sealOf returns the seal of the value b.
func sealOf(b []byte) seal {
	key := sealKey()
	h := sha512.New512_256()
	_, _ = h.Write(key[:])
	_, _ = h.Write(b)
	var sum [sha512.Size256]byte
	return seal(h.Sum(sum[:0])[:len(seal{})])
}

// carried is what KeyHeaders holds.
type carried struct {
	id         uint64        // the hash of the message's id: its properties are not those of another message
	properties amqp091.Table // as propertiesOf names them
	headers    amqp091.Table // those that are no strings, by the name they have in metadata
	sealed     bool          // this process wrote it
}

func hashOf(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// encode returns the empty string where there is nothing to carry.
func (c carried) encode() string {
	if len(c.properties) == 0 && len(c.headers) == 0 {
		return ""
	}
	b := binary.BigEndian.AppendUint64(append(make([]byte, 0, 256), carriedVersion), c.id)
	b, ok := appendTable(b, c.properties, 0)
	if ok {
		b, ok = appendTable(b, c.headers, 0)
	}
	if !ok || len(b)+len(seal{}) > maxCarried {
		return ""
	}
	sum := sealOf(b)
	b = append(b, sum[:]...)
	return base64.RawStdEncoding.EncodeToString(b)
}

// decodeCarried reads what encode wrote. Anything else, however made, is not ok.
func decodeCarried(value string) (c carried, ok bool) {
	if value == "" || len(value) > base64.RawStdEncoding.EncodedLen(maxCarried) {
		return carried{}, false
	}
	raw, err := base64.RawStdEncoding.Strict().DecodeString(value)
	if err != nil {
		return carried{}, false
	}
	if len(raw) < len(seal{}) {
		return carried{}, false
	}
	body := raw[:len(raw)-len(seal{})]
	p := parser{rest: body}
	if p.uint(1) != carriedVersion {
		return carried{}, false
	}
	c.id = p.uint(8)
	c.properties = p.table(0)
	c.headers = p.table(0)
	if p.bad || len(p.rest) > 0 || !areProperties(c.properties) {
		return carried{}, false
	}
	sum := sealOf(body)
	c.sealed = subtle.ConstantTimeCompare(sum[:], raw[len(body):]) == 1
	return c, true
}

// The names of properties in a carried value.
const (
	contentType, contentEncoding  = "content_type", "content_encoding"
	correlationID, replyTo        = "correlation_id", "reply_to"
	messageID, messageType, appID = "message_id", "type", "app_id"
	priority, timestamp           = "priority", "timestamp"
)

// propertiesOf are the producer's properties. Not among them: the expiration, because the message's time has passed and
// a dead letter must not expire; the user, whom the broker believes only of his own connection and else closes the
// channel; the delivery mode, which is always persistent.
func propertiesOf(d *amqp091.Delivery) amqp091.Table {
	var table amqp091.Table
	set := func(name string, value any) {
		if table == nil {
			table = amqp091.Table{}
		}
		table[name] = value
	}
	for _, p := range [...]struct{ name, value string }{
		{contentType, d.ContentType}, {contentEncoding, d.ContentEncoding}, {correlationID, d.CorrelationId},
		{replyTo, d.ReplyTo}, {messageID, d.MessageId}, {messageType, d.Type}, {appID, d.AppId},
	} {
		if p.value != "" {
			set(p.name, p.value)
		}
	}
	if d.Priority != 0 {
		set(priority, d.Priority)
	}
	if !d.Timestamp.IsZero() {
		set(timestamp, d.Timestamp)
	}
	return table
}

// areProperties reports whether a table holds nothing else, of the right types and lengths.
func areProperties(table amqp091.Table) bool {
	for name, value := range table {
		switch name {
		case priority:
			if _, ok := value.(uint8); !ok {
				return false
			}
		case timestamp:
			if _, ok := value.(time.Time); !ok {
				return false
			}
		case contentType, contentEncoding, correlationID, replyTo, messageID, messageType, appID:
			if s, ok := value.(string); !ok || len(s) > maxShort {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// writeTo sets the properties of p. They have the right types: areProperties saw to it.
func (c carried) writeTo(p *amqp091.Publishing) {
	for name, to := range map[string]*string{
		contentType: &p.ContentType, contentEncoding: &p.ContentEncoding, correlationID: &p.CorrelationId,
		replyTo: &p.ReplyTo, messageID: &p.MessageId, messageType: &p.Type, appID: &p.AppId,
	} {
		*to, _ = c.properties[name].(string)
	}
	p.Priority, _ = c.properties[priority].(uint8)
	p.Timestamp, _ = c.properties[timestamp].(time.Time)
}

// parser reads what appendField wrote, or what a producer put in its place: every length is checked against the bytes
// that are there, and the first thing that is wrong ends it.
type parser struct {
	rest []byte
	bad  bool
}

func (p *parser) take(n int) []byte {
	if p.bad || n < 0 || n > len(p.rest) {
		p.bad, p.rest = true, nil
		return nil
	}
	taken := p.rest[:n:n]
	p.rest = p.rest[n:]
	return taken
}

// uint is a number of so many bytes.
func (p *parser) uint(size int) (n uint64) {
	for _, b := range p.take(size) {
		n = n<<8 | uint64(b)
	}
	return n
}

// long is a run of bytes with its length before it.
func (p *parser) long() []byte { return p.take(int(p.uint(4))) }

func (p *parser) field(depth int) any {
	switch p.uint(1) {
	case 'V':
		return nil
	case 't':
		switch p.uint(1) {
		case 0:
			return false
		case 1:
			return true
		}
	case 'B':
		return uint8(p.uint(1))
	case 'b':
		return int8(p.uint(1))
	case 's':
		return int16(p.uint(2))
	case 'I':
		return int32(p.uint(4))
	case 'l':
		return int64(p.uint(8))
	case 'f':
		return math.Float32frombits(uint32(p.uint(4)))
	case 'd':
		return math.Float64frombits(p.uint(8))
	case 'D':
		return amqp091.Decimal{Scale: uint8(p.uint(1)), Value: int32(p.uint(4))}
	case 'T':
		return time.Unix(int64(p.uint(8)), 0)
	case 'S':
		return string(p.long())
	case 'x':
		return append([]byte{}, p.long()...)
	case 'A':
		return p.array(depth)
	case 'F':
		if depth < maxDepth {
			return p.table(depth + 1)
		}
	}
	p.bad = true
	return nil
}

func (p *parser) array(depth int) []any {
	inner := parser{rest: p.long(), bad: p.bad || depth >= maxDepth}
	array := []any{}
	for !inner.bad && len(inner.rest) > 0 {
		array = append(array, inner.field(depth+1))
	}
	p.bad = p.bad || inner.bad
	return array
}

func (p *parser) table(depth int) amqp091.Table {
	inner := parser{rest: p.long(), bad: p.bad}
	table := amqp091.Table{}
	for !inner.bad && len(inner.rest) > 0 {
		key := string(inner.take(int(inner.uint(1))))
		if _, twice := table[key]; twice {
			inner.bad = true
		}
		table[key] = inner.field(depth)
	}
	p.bad = p.bad || inner.bad
	return table
}
