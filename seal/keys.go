package seal

import (
	"context"
	"fmt"
	"strings"
)

const (
	// SecretSize is the number of bytes of a secret.
	SecretSize = 32
	// MaxKeyID is the largest number of bytes of a key's id.
	MaxKeyID = 64
	// MaxWrapped is the largest number of bytes of a wrapped data key.
	MaxWrapped = 4 << 10
)

// Keys are what a Sealer seals and opens with: a Keyring, or what asks a KMS. They must be safe for concurrent use. The
// context ends after Config.Timeout. A panic is an error.
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
	// ID names the key in each letter, where all can read it: 1 to MaxKeyID of A-Z a-z 0-9 . _ - : / . Two keys never
	// share an id. For envelope encryption it is the id of the KMS's key, which wraps the data key.
	ID string
	// Secret is the key, or the data key: SecretSize random bytes. It is not changed.
	Secret []byte
	// Wrapped is the data key as the KMS encrypted it, at most MaxWrapped bytes. The letter carries it. Nil without
	// envelope encryption.
	Wrapped []byte
}

// validate never shows the secret.
func (k *Key) validate() error {
	if err := validID(k.ID); err != nil {
		return err
	}
	if len(k.Secret) != SecretSize {
		return fmt.Errorf("the secret of key %q has %d bytes: it must have %d: make one with `openssl rand -base64 %d`", k.ID,
			len(k.Secret), SecretSize, SecretSize)
	}
	if len(k.Wrapped) > MaxWrapped {
		return fmt.Errorf("the wrapped key of %q has %d bytes: at most %d are possible", k.ID, len(k.Wrapped), MaxWrapped)
	}
	return nil
}

func validID(id string) error {
	if id == "" || len(id) > MaxKeyID || strings.IndexFunc(id, func(r rune) bool { return !allowed(r) }) >= 0 {
		return fmt.Errorf("the key id %.80q must be 1 to %d of A-Z a-z 0-9 . _ - : /", id, MaxKeyID)
	}
	return nil
}

func allowed(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		r != 0 && strings.ContainsRune("._-:/", r)
}
