package seal

import (
	"context"

	"github.com/watermill-spillway/spillway/internal/envelope"
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
