package envelope

import (
	"context"
	"fmt"
	"strings"
)

const (
	// SecretSize is the number of bytes of a secret.
	SecretSize = 32
	maxKeyID   = 64
	maxWrapped = 4 << 10
)

// Keys are seal.Keys.
type Keys interface {
	Current(ctx context.Context) (Key, error)
	Find(ctx context.Context, id string, wrapped []byte) (secret []byte, err error)
}

// Key is a seal.Key.
type Key struct {
	ID      string
	Secret  []byte
	Wrapped []byte
}

// Validate returns an error that names the key, and never shows its secret.
func (k *Key) Validate() error {
	if err := validID(k.ID); err != nil {
		return err
	}
	if len(k.Secret) != SecretSize {
		return fmt.Errorf("the secret of key %q has %d bytes: it must have %d: make one with `openssl rand -base64 %d`",
			k.ID,
			len(k.Secret), SecretSize, SecretSize)
	}
	if len(k.Wrapped) > maxWrapped {
		return fmt.Errorf("the wrapped key of %q has %d bytes: at most %d are possible", k.ID, len(k.Wrapped),
			maxWrapped)
	}
	return nil
}

func validID(id string) error {
	if id == "" || len(id) > maxKeyID || strings.IndexFunc(id, func(r rune) bool { return !allowed(r) }) >= 0 {
		return fmt.Errorf("the key id %.80q must be 1 to %d of A-Z a-z 0-9 . _ - : /", id, maxKeyID)
	}
	return nil
}

func allowed(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		r != 0 && strings.ContainsRune("._-:/", r)
}
