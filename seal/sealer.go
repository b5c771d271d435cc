package seal

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/codec/envelope"
	"github.com/watermill-spillway/spillway/internal/hidden"
)

// keysTimeout bounds each call of Keys: a message is held for as long.
const keysTimeout = 10 * time.Second

// Sealer seals letters, and opens them. It is safe for concurrent use. A nil *Sealer opens nothing.
type Sealer struct{ handle }

type handle = hidden.Handle[*envelope.Sealer]

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
	return &Sealer{hidden.By(envelope.New(sealing{keys}, keysTimeout, slices.Clone(clear)))}, nil
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
