package sequence

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// Source is a partition of a topic, for one consumer group.
type Source struct {
	Group, Topic string
	Partition    int32
}

// hash tells sources apart beside each offset, whatever their names hold.
func (s Source) hash(service string) string {
	var b []byte
	for _, part := range []string{service, s.Group, s.Topic} {
		b = metadatacodec.Append(b, part)
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(b, uint32(s.Partition)))
	return string(sum[:])
}

// Key is how a receiver recognises a message.
type Key struct {
	Consumer, ID string
	Fingerprint  []byte // of the payload, or nil
}

// Row is a parked message.
type Row struct {
	seq         int64
	Lane        []byte
	Position    int64
	Fingerprint []byte
	Redrives    int64
	SentAt      time.Time
	Key         Key
	RecordKey   []byte
	Msg         *message.Message
	Due         time.Time // by this process's clock
	Held        bool      // until a person decides
	Decision    Decision  // of a person
	By, Why     string    // who decided, and for what reason
	DecidedAt   int64     // microseconds since 1970, of the latest decision; 0 if there was none
}

const (
	// readable is the longest key that stands for itself.
	readable = 200
	hashed   = readable + 1 // bytes of what stands for a longer one
	alone    = readable + 2 // and for a message without a key
)

// LaneOf returns what stands for a key: the key itself if it is short, and otherwise its head and its hash. No two keys
// have the same.
func LaneOf(key []byte) []byte {
	if len(key) <= readable {
		return key
	}
	sum := sha256.Sum256(key)
	return append(append(make([]byte, 0, hashed), key[:hashed-len(sum)]...), sum[:]...)
}

// laneAlone is that of a message without a key, which is a sequence by itself.
func laneAlone(row *Row) []byte {
	lane := binary.BigEndian.AppendUint64(make([]byte, alone-8, alone), uint64(row.Position))
	copy(lane, row.Fingerprint)
	return lane
}

// FingerprintOf tells a message from another at the same position of a topic that was made anew.
func FingerprintOf(msg *message.Message) []byte {
	h := sha256.New()
	_, _ = h.Write(metadatacodec.Append(nil, msg.UUID))
	_, _ = h.Write(msg.Payload)
	return h.Sum(nil)
}

// wholeOf tells a message from another of a source without offsets. Two that are alike in all of this are one message
// to the receiver, too.
func wholeOf(msg *message.Message) []byte {
	b := metadatacodec.Append(nil, msg.UUID)
	for _, name := range slices.Sorted(maps.Keys(msg.Metadata)) {
		b = metadatacodec.Append(metadatacodec.Append(b, name), msg.Metadata[name])
	}
	h := sha256.New()
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
	_, _ = h.Write(b)
	_, _ = h.Write(msg.Payload)
	return h.Sum(nil)
}

func (r *Row) size() int { return len(r.Msg.Payload) + len(r.Msg.UUID) + len(r.RecordKey) + 1024 }

func (r *Row) args(db *database.Database, service string, of Source, source string, wait time.Duration) []any {
	var payload, key any // a nil []byte is NULL to some drivers, and empty to others
	if r.Msg.Payload != nil {
		payload = []byte(r.Msg.Payload)
	}
	if r.RecordKey != nil {
		key = r.RecordKey
	}
	return []any{[]byte(service), []byte(of.Group), []byte(of.Topic), of.Partition, []byte(source), notNil(r.Lane),
		r.Position, r.Fingerprint, r.Redrives, wait.Microseconds(), r.heldNumber(), boundedtext.Moment(r.SentAt).UnixMicro(),
		db.Text(database.Column(r.Key.Consumer)), db.Text(database.Column(r.Key.ID)), key, r.size(), []byte(r.Msg.UUID),
		metadatacodec.Metadata(r.Msg.Metadata), payload}
}

func (r *Row) heldNumber() int {
	if r.Held {
		return 1
	}
	return 0
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// decode is the way back. metadata and payload come apart, because a damaged row must not be lost.
func (r *Row) decode(id, metadata, payload []byte, hasPayload bool) error {
	decoded, err := metadatacodec.Read(metadata)
	if err != nil {
		return err
	}
	if hasPayload && payload == nil {
		payload = []byte{}
	}
	r.Msg = message.NewMessage(string(id), payload)
	r.Msg.Metadata = decoded
	r.Msg.SetContext(context.Background())
	return nil
}

// place is where the message stands, for its key.
func (r *Row) place(source string) keytable.Place {
	return keytable.Place{Source: source, Position: r.Position, Redrives: r.Redrives}
}

var table = keytable.Parked

// columns of a row that is written, in the order of Row.args.
const columns = `service, members, topic, part, source, lane, position, fingerprint, redrives, due_at, held, sent_at, consumer, key_id,
record_key, bytes, id, metadata, payload`
