// Package envelope seals and opens dead letters, for package seal. Its doc.go describes the envelope.
package envelope

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

const (
	version         = 1
	fingerprintSize = 16
	nonceSize       = 12
	tagSize         = 16
	maxBound        = 64 << 10 // bytes of a topic or an id
)

// Binding says which letter an envelope belongs to.
type Binding struct {
	// Topic is the origin topic of the letter.
	Topic string
	// ID is the id of the message.
	ID string
	// Redrives is how often the message was redriven.
	Redrives int
}

// Header is what an envelope says without a key. Only Open shows that it is true.
type Header struct {
	// KeyID names the key.
	KeyID string
	// Wrapped is the wrapped data key, if there is one.
	Wrapped []byte
	// Fingerprint is the same for the same content of the same letter under the same key.
	Fingerprint []byte
	Binding

	nonce, additional, sealed []byte
}

// Parse reads the header of an envelope. It returns an error that is ErrDamaged for bytes that are none. The Header
// shares the bytes of the envelope.
func Parse(envelope []byte) (Header, error) {
	r := reader{rest: envelope}
	if v := r.take(1); len(v) != 1 || v[0] != version {
		return Header{}, &Error{Err: ErrDamaged}
	}
	h := Header{}
	if n := r.take(1); len(n) == 1 {
		h.KeyID = string(r.take(int(n[0])))
	}
	if r.failed || validID(h.KeyID) != nil {
		return Header{}, &Error{Err: ErrDamaged}
	}
	h.Wrapped = r.field(maxWrapped)
	h.Fingerprint = r.take(fingerprintSize)
	h.nonce = r.take(nonceSize)
	h.Topic, h.ID = string(r.field(maxBound)), string(r.field(maxBound))
	redrives := r.number(math.MaxInt32)
	if r.failed || len(r.rest) < tagSize {
		return Header{}, &Error{h.KeyID, ErrDamaged}
	}
	h.Redrives = int(redrives)
	h.sealed = r.rest
	h.additional = envelope[:len(envelope)-len(r.rest)]
	if len(h.Wrapped) == 0 {
		h.Wrapped = nil
	}
	return h, nil
}

// appendHeader writes what Parse reads, with room for the ciphertext.
func appendHeader(key *Key, fingerprint, nonce []byte, b Binding, room int) []byte {
	size := 2 + len(key.ID) + len(key.Wrapped) + fingerprintSize + nonceSize + len(b.Topic) + len(b.ID) +
		4*binary.MaxVarintLen32
	to := make([]byte, 0, size+room+tagSize)
	to = append(to, version, byte(len(key.ID)))
	to = append(to, key.ID...)
	to = appendField(to, key.Wrapped)
	to = append(append(to, fingerprint...), nonce...)
	return appendBinding(to, b)
}

func appendBinding(to []byte, b Binding) []byte {
	to = appendField(appendField(to, []byte(b.Topic)), []byte(b.ID))
	return binary.AppendUvarint(to, uint64(b.Redrives))
}

func appendField(to, field []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(field))), field...)
}

// reader reads bytes that anyone may have written.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if r.failed || n < 0 || n > len(r.rest) {
		r.failed = true
		return nil
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

// number reads a number in its shortest form: there is one form of each envelope.
func (r *reader) number(most uint64) uint64 {
	n, width := binary.Uvarint(r.rest)
	if r.failed || width <= 0 || n > most || width != len(binary.AppendUvarint(nil, n)) {
		r.failed = true
		return 0
	}
	r.rest = r.rest[width:]
	return n
}

func (r *reader) field(most uint64) []byte { return r.take(int(r.number(most))) }

// Content is what an envelope hides.
type Content struct {
	// Payload is kept byte for byte. Nil and empty payloads are kept apart.
	Payload []byte
	// Metadata are the producer's.
	Metadata map[string]string
}

const noPayload = 1 // the flag of a nil payload

// plain writes the content, the keys in their order: the same content has the same bytes.
func (c *Content) plain() []byte {
	size := 1 + binary.MaxVarintLen64 + len(c.Payload)
	for key, value := range c.Metadata {
		size += len(key) + len(value) + 2*binary.MaxVarintLen32
	}
	to := make([]byte, 0, size)
	if c.Payload == nil {
		to = append(to, noPayload)
	} else {
		to = append(to, 0)
	}
	to = binary.AppendUvarint(to, uint64(len(c.Metadata)))
	for _, key := range slices.Sorted(maps.Keys(c.Metadata)) {
		to = appendField(appendField(to, []byte(key)), []byte(c.Metadata[key]))
	}
	return append(to, c.Payload...)
}

// readContent is the way back. Who holds the key may have written anything.
func readContent(plain []byte) (c Content, ok bool) {
	r := reader{rest: plain}
	flags := r.take(1)
	n := r.number(uint64(len(plain)))
	for ; n > 0 && !r.failed; n-- {
		if c.Metadata == nil {
			c.Metadata = make(map[string]string)
		}
		key := r.field(math.MaxInt32)
		c.Metadata[string(key)] = string(r.field(math.MaxInt32))
	}
	switch {
	case r.failed, flags[0] > noPayload, flags[0] == noPayload && len(r.rest) > 0:
		return Content{}, false
	case flags[0] == 0:
		c.Payload = slices.Clip(r.rest)
		if c.Payload == nil {
			c.Payload = []byte{}
		}
	}
	return c, true
}

var (
	// ErrNoKeys is the error of a sealed letter where no Sealer is configured.
	ErrNoKeys = errors.New("no keys are configured: set spillway.Config.Seal, the Seal of letters.NewStore or " +
		"redrive.Rules.Seal; the command redrive takes --keys")
	// ErrUnknownKey is returned by Keys that do not have a key, and know that they will not have it later.
	ErrUnknownKey = errors.New("the keys do not have this key: add it to them, as an old key")
	// ErrUnavailable is the error of Keys that failed for now. It says nothing of the letter.
	ErrUnavailable = errors.New("the keys are unavailable: see to the KMS or to what else holds them")
	// ErrDamaged is the error of bytes that do not open.
	ErrDamaged = errors.New("the envelope does not open: it is cut or changed, or the key of this id is another one: " +
		"compare the key with that of the process that sealed, and the letter with a backup")
	// ErrOtherLetter is the error of an envelope in a letter that it was not made for.
	ErrOtherLetter = errors.New("the envelope belongs to another letter: compare both letters with a backup")
)

// Error is the error of an envelope. It wraps one of the Err values.
type Error struct {
	// KeyID names the key, as far as it can be read.
	KeyID string
	Err   error
}

// Error names the key.
func (e *Error) Error() string {
	if e.KeyID == "" {
		return fmt.Sprintf("seal: %v", e.Err)
	}
	return fmt.Sprintf("seal: sealed with key %q: %v", e.KeyID, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
