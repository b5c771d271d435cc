package seal

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/watermill-spillway/spillway/internal/codec/envelope"
)

// keyring is Keys in memory: a current key and old ones.
type keyring struct {
	current string
	secrets map[string][]byte
}

// ParseKeyring reads keys from text: a key a line, its id and the base64 of its secret, with blanks between them.
// The first key is the current one. Empty lines, and lines that begin with #, say nothing.
//
//	# made on 2026-11-01
//	orders-2026-11 q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=
//	orders-2025-11 EjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJCrze8=
//
// `openssl rand -base64 32` makes a secret. An error never shows one.
func ParseKeyring(text string) (Keys, error) {
	k := &keyring{secrets: map[string][]byte{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("seal: keys, line %d: want the id of a key and the base64 of its secret", number)
		}
		id := fields[0]
		secret, err := base64.StdEncoding.DecodeString(fields[1])
		if err != nil {
			return nil, fmt.Errorf("seal: keys, line %d: the secret of key %.80q is no base64", number, id)
		}
		if err := (&envelope.Key{ID: id, Secret: secret}).Validate(); err != nil {
			return nil, fmt.Errorf("seal: keys, line %d: %w", number, err)
		}
		if k.secrets[id] != nil {
			return nil, fmt.Errorf("seal: keys, line %d: the key %q is there twice: give each secret an id of its own",
				number,
				id)
		}
		k.secrets[id] = secret
		if k.current == "" {
			k.current = id
		}
	}
	if k.current == "" {
		return nil, errors.New("seal: there is no key: write a line with an id and the base64 of a secret")
	}
	return k, nil
}

// maxKeyFile bounds a file of keys, in bytes.
const maxKeyFile = 1 << 20

// ReadKeyring reads keys from a file, as ParseKeyring does. It refuses a file that others than owner and group may
// read, or that others than the owner may write.
func ReadKeyring(path string) (Keys, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("seal: keys: %w", err)
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.Perm()&0o027 != 0 {
		return nil, fmt.Errorf("seal: the file of keys %q has the mode %s: others may read or change it: run chmod 600 %[1]q",
			path, mode.Perm())
	}
	if info.Size() > maxKeyFile || info.Mode()&fs.ModeType != 0 {
		return nil, fmt.Errorf("seal: the file of keys %q is no file of at most %d bytes", path, maxKeyFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("seal: keys: %w", err)
	}
	k, err := ParseKeyring(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// Current returns the current key.
func (k *keyring) Current(context.Context) (Key, error) {
	return Key{ID: k.current, Secret: k.secrets[k.current]}, nil
}

// Find returns the secret of a key. Wrapped is not used.
func (k *keyring) Find(_ context.Context, id string, _ []byte) ([]byte, error) {
	secret := k.secrets[id]
	if secret == nil {
		return nil, ErrUnknownKey
	}
	return secret, nil
}

// String shows the ids alone, so that no log shows a secret.
func (k *keyring) String() string {
	return fmt.Sprintf("%d keys, %q is the current one", len(k.secrets), k.current)
}

// GoString is String, for %#v.
func (k *keyring) GoString() string { return k.String() }
