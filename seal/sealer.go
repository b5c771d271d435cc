package seal

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/codec/envelope"
)

// keysTimeout bounds each call of Keys: a message is held for as long.
const keysTimeout = 10 * time.Second

// Sealer seals letters, and opens them. It is safe for concurrent use. A nil *Sealer opens nothing.
type Sealer struct{ inside *envelope.Sealer }

// New returns a Sealer. clear are the keys of producers' metadata that stay readable in a sealed letter. A * stands for
// any text, such as in "tenant-*". Only by these can letters be filtered and found. Without them all of the producer's
// metadata is sealed.
func New(keys Keys, clear ...string) (*Sealer, error) {
	if v := reflect.ValueOf(keys); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("seal: New: the Keys are nil: give a keyring, or Keys that ask a KMS")
	}
	if slices.Contains(clear, "") {
		return nil, errors.New("seal: New: clear contains an empty key: name a metadata key, or use * for all")
	}
	return &Sealer{envelope.New(sealing{keys}, keysTimeout, slices.Clone(clear))}, nil
}

// Inside is for the other packages of Spillway.
func (s *Sealer) Inside() *envelope.Sealer {
	if s == nil {
		return nil
	}
	return s.inside
}

var (
	// ErrNoKeys is the error of a sealed letter if no Sealer is configured.
	ErrNoKeys = envelope.ErrNoKeys
	// ErrUnknownKey is returned by Keys that do not have a key, and know that they will not have it later.
	ErrUnknownKey = envelope.ErrUnknownKey
	// ErrUnavailable is the error of Keys that failed for now. It says nothing of the letter.
	ErrUnavailable = envelope.ErrUnavailable
	// ErrDamaged is the error of bytes that do not open.
	ErrDamaged = envelope.ErrDamaged
	// ErrOtherLetter is the error of an envelope in a letter that it was not made for.
	ErrOtherLetter = envelope.ErrOtherLetter
)

// SecretSize is the number of bytes of a secret.
const SecretSize = 32

// Keys are what a Sealer seals and opens with: a keyring that ReadKeyring or ParseKeyring returns, or what asks a KMS.
// They must be safe for concurrent use. The context ends after 10 s. A panic is an error.
type Keys interface {
	// Current returns the key for new letters. It is called for each letter: keep what is expensive to get.
	Current(ctx context.Context) (Key, error)
	// Find returns the secret of the key id. wrapped is what Key.Wrapped was when the letter was sealed, or nil. Find
	// returns an error that is ErrUnknownKey if there is no such key. Every other error counts as an outage, and the
	// letter is tried again.
	Find(ctx context.Context, id string, wrapped []byte) (secret []byte, err error)
}

// Key is a key for new letters.
type Key struct {
	// ID names the key in each letter, where all can read it: 1 to 64 of A-Z a-z 0-9 . _ - : / . Two keys never share
	// an id. For envelope encryption it is the id of the KMS's key, which wraps the data key.
	ID string
	// Secret is the key, or the data key: SecretSize random bytes. It is not changed.
	Secret []byte
	// Wrapped is the data key as the KMS encrypted it, at most 4 KiB. The letter carries it. Nil without envelope
	// encryption.
	Wrapped []byte
}

// sealing are Keys as package envelope takes them.
type sealing struct{ Keys }

// Current returns the key for new letters.
func (s sealing) Current(ctx context.Context) (envelope.Key, error) {
	key, err := s.Keys.Current(ctx)
	return envelope.Key(key), err
}
