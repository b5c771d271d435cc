package letters

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/poison"
)

// record is a letter as it goes into a row.
type record struct {
	service  string
	identity []byte
	topic    string
	msg      *message.Message
	metadata []byte
	letter   poison.Letter
	cause    string
}

func newRecord(service, topic string, msg *message.Message) record {
	r := record{service: service, topic: topic, msg: msg, metadata: metadatacodec.Metadata(msg.Metadata),
		letter: poison.Read(msg)}
	r.identity = identify(service, topic, r.letter)
	r.cause = causeOf(topic, &r.letter).hash()
	return r
}

// failed returns the times of the first and the latest failure of a letter that arrives now.
func (r *record) failed(now time.Time) (first, last time.Time) {
	first, last = r.letter.Failure.FirstFailedAt, lastFailed(r.letter, now)
	if first.IsZero() {
		first = last
	}
	return first, last
}

// args are what the statement insert binds.
func (r *record) args(now time.Time, db *database.Database) []any {
	l := &r.letter
	first, last := r.failed(now)
	return []any{
		r.identity, []byte(r.topic), []byte(r.msg.UUID),
		[]byte(l.Origin.Topic), []byte(l.Origin.Handler), db.Text(l.Failure.Class.String()), db.Bytes(l.Failure.Reason),
		db.Bytes(l.Failure.Type), db.Bytes(l.Failure.StackHash), db.Bytes(l.Failure.Description), first.UnixMicro(),
		last.UnixMicro(), now.UnixMicro(), []byte(r.service), db.Text(r.cause), len(r.metadata) + len(r.msg.Payload),
		db.Bytes(redriveID(l)), db.Text(sealKey(l)), db.Text(l.Redrive.Letter),
	}
}

// redriveID is the id of the drain that brought the letter back. A longer one than ours is none.
func redriveID(l *poison.Letter) string {
	if len(l.Redrive.ID) > maxID {
		return ""
	}
	return l.Redrive.ID
}

// size is about what the letter's row takes.
func (r *record) size() int {
	return len(r.topic) + len(r.msg.UUID) + len(r.metadata) + len(r.msg.Payload) + len(r.letter.Origin.Topic) +
		len(r.letter.Origin.Handler) + len(r.letter.Failure.Reason) + len(r.letter.Failure.Type) +
		len(r.letter.Failure.StackHash) + len(r.letter.Failure.Description)
}

// identify is the same for the same letter arriving again and for no other: service, consumer, origin, id, redrive
// count, and the payload and the producer's metadata, because an id that is used twice must not lose a message. Of a
// sealed letter the fingerprint stands for what is sealed. Without an id no letter is the same as another.
func identify(service, topic string, l poison.Letter) []byte {
	if l.Original.UUID == "" {
		unique := make([]byte, sha256.Size)
		_, _ = rand.Read(unique) // never fails
		return unique
	}
	origin := "origin:" + l.Origin.Topic
	if l.Origin.Topic == "" {
		origin = "dead:" + topic
	}
	payload := contentOf(&l)
	var parts []byte
	if service != "" {
		parts = metadatacodec.Append(parts, "service:"+service)
	}
	for _, part := range []string{
		origin, l.Origin.ConsumerGroup, l.Origin.Handler, l.Original.UUID, strconv.Itoa(l.Redrive.Count), string(payload),
	} {
		parts = metadatacodec.Append(parts, part)
	}
	for _, key := range slices.Sorted(maps.Keys(l.Original.Metadata)) {
		parts = metadatacodec.Append(metadatacodec.Append(parts, key), l.Original.Metadata[key])
	}
	sum := sha256.Sum256(parts)
	return sum[:]
}

// Status is the state of a letter in a Store. A lease is not a status: a leased letter keeps the status that it had.
type Status string

const (
	// StatusWaiting is the status of a letter that a drain takes.
	StatusWaiting Status = "waiting"
	// StatusRedriven is the status of a letter that was published to its topic.
	StatusRedriven Status = "redriven"
	// StatusSucceeded is the status of a redriven letter whose message was handled then.
	StatusSucceeded Status = "succeeded"
	// StatusFailedAgain is the status of a redriven letter whose message became another dead letter.
	StatusFailedAgain Status = "failed_again"
	// StatusQuarantined is the status of a letter that failed again after its last redrive.
	StatusQuarantined Status = "quarantined"
	// StatusRefused is the status of a letter that a person refused. No drain sets it.
	StatusRefused Status = "refused"
	// StatusDiscarded is the status of a letter that a person gave up. No redrive takes it, until MarkAll restores it.
	StatusDiscarded Status = "discarded"
	// StatusErased is the status of a letter whose payload, metadata and texts are gone. No redrive takes it, and only
	// Erase sets it. A letter does not leave this status.
	StatusErased Status = "erased"
)

// Statuses are all states that a letter can have.
func Statuses() []Status {
	return []Status{StatusWaiting, StatusRedriven, StatusSucceeded, StatusFailedAgain, StatusQuarantined, StatusRefused,
		StatusDiscarded, StatusErased}
}

// event is what the record calls a letter's way into the status.
func (s Status) event() EventKind { return EventKind(s) }

// settable returns an error if no caller may set s.
func (s Status) settable() error {
	if s == StatusErased {
		return fmt.Errorf("the status %q: use Erase", string(s))
	}
	return s.validate()
}

// validate returns an error if s is no constant of this package.
func (s Status) validate() error {
	if slices.Contains(Statuses(), s) {
		return nil
	}
	return fmt.Errorf("unknown status %q: use one of %q", string(s), Statuses())
}
