package wmkafka

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// KeyRecord is metadata that carries what other metadata cannot hold of a record: headers that share a name, null
// header values, a key that is empty or too long for poison.KeyOriginalKey, and that a record could not be read. Few
// messages have it. Marshaler writes it and restores the record from it, unless the metadata was changed.
//
// Its headers are the producer's. If letters go elsewhere than to Kafka, a poison.QueueConfig.MaskMetadata that hides
// one of several headers of one name must hide KeyRecord too. It is no part of a record on Kafka. The name is reserved:
// a producer's header of this name that would read as one is dropped.
const KeyRecord = "x-kafka-record"

// maxCarried bounds what is carried, in bytes before base64. What is more is not carried at all.
const maxCarried = 32 << 10

// aroundHeader is what JSON adds to a header, at most.
const aroundHeader = len(`{"Key":null,"Value":null},`)

// maxMetadataKey is the longest record key that a letter's own metadata holds.
const maxMetadataKey = 4 << 10

// headersToSearch is how many headers are searched without allocating: a letter has some twenty.
const headersToSearch = 40

// carried is the content of KeyRecord, in JSON. The zero value carries nothing.
type carried struct {
	Unreadable bool
	Key        []byte // not nil where it is carried
	Headers    []sarama.RecordHeader
}

// carry adds to msg what its metadata cannot hold of record.
func carry(msg *message.Message, record *sarama.ConsumerMessage, unreadable bool) {
	c := carried{Unreadable: unreadable}
	if beyondMetadata(record.Key) {
		c.Key = record.Key
	}
	c.Headers = irregular(record.Headers)
	if !unreadable && c.Key == nil && c.Headers == nil {
		return
	}
	if encoded := c.encode(); encoded != "" {
		if msg.Metadata == nil {
			msg.Metadata = message.Metadata{}
		}
		msg.Metadata[KeyRecord] = encoded
	}
}

// beyondMetadata reports whether a record's key is one that poison.KeyOriginalKey cannot hold.
func beyondMetadata(key []byte) bool {
	return key != nil && (len(key) == 0 || len(key) > maxMetadataKey)
}

// irregular returns the headers that share a name and those that are null, in their order; nil where there are none.
func irregular(headers []*sarama.RecordHeader) []sarama.RecordHeader {
	repeated := repeatedNames(headers)
	var found []sarama.RecordHeader
	for _, h := range headers {
		if h == nil {
			continue
		}
		null := h.Value == nil && string(h.Key) != kafka.UUIDHeaderKey // an id that is null is an id that is not there
		if null || repeated[string(h.Key)] {
			found = append(found, *h)
		}
	}
	return found
}

// repeatedNames returns nil where every name is there once, as in nearly every record, which is found out without
// allocating for a usual number of headers.
func repeatedNames(headers []*sarama.RecordHeader) map[string]bool {
	if len(headers) <= headersToSearch && !anyRepeated(headers) {
		return nil
	}
	names := make(map[string]bool, len(headers))
	for _, h := range headers {
		if h != nil {
			_, seen := names[string(h.Key)]
			names[string(h.Key)] = seen
		}
	}
	return names
}

func anyRepeated(headers []*sarama.RecordHeader) bool {
	for i, h := range headers {
		for _, other := range headers[:i] {
			if h != nil && other != nil && bytes.Equal(h.Key, other.Key) {
				return true
			}
		}
	}
	return false
}

// restoreHeaders puts back the headers whose metadata still says what it said on arrival.
func (c carried) restoreHeaders(record *sarama.ProducerMessage) {
	done := make(map[string]bool)
	for _, h := range slices.Backward(c.Headers) {
		name := string(h.Key)
		if done[name] {
			continue
		}
		done[name] = true // the last of a name is the one that metadata shows
		at := slices.IndexFunc(record.Headers, func(other sarama.RecordHeader) bool {
			return string(other.Key) == name && bytes.Equal(other.Value, h.Value)
		})
		if at >= 0 {
			record.Headers = slices.Replace(record.Headers, at, at+1, c.named(name)...)
		}
	}
}

func (c carried) named(name string) []sarama.RecordHeader {
	return slices.DeleteFunc(slices.Clone(c.Headers), func(h sarama.RecordHeader) bool { return string(h.Key) != name })
}

// encode returns "" for what is too much to carry.
func (c carried) encode() string {
	if len(c.Key) > maxCarried/2 {
		c.Key = nil
	}
	size := len(c.Key)
	for _, h := range c.Headers {
		size += len(h.Key) + len(h.Value) + aroundHeader
	}
	if size > maxCarried { // half of the headers would say something else
		c.Headers = nil
	}
	if !c.Unreadable && c.Key == nil && len(c.Headers) == 0 {
		return ""
	}
	encoded, _ := json.Marshal(c) // which has nothing that fails
	return string(encoded)
}

// carriedBy reads a value that any producer may have written. One that is not exactly of the form above is metadata
// like any other.
func carriedBy(msg *message.Message) (carried, bool) {
	encoded, ok := msg.Metadata[KeyRecord]
	if !ok {
		return carried{}, false
	}
	return decodeCarried(encoded)
}

func isCarried(encoded string) bool {
	_, ok := decodeCarried(encoded)
	return ok
}

func decodeCarried(encoded string) (c carried, ok bool) {
	if len(encoded) > 2*maxCarried || json.Unmarshal([]byte(encoded), &c) != nil || c.encode() != encoded ||
		c.Key != nil && !beyondMetadata(c.Key) {
		return carried{}, false
	}
	return c, true
}
