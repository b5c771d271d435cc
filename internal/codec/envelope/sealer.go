package envelope

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// Sealer seals letters, and opens them: see seal.Sealer. A nil *Sealer opens nothing.
type Sealer struct {
	keys  Keys
	limit time.Duration
	clear []string
}

// New returns a Sealer. limit bounds each call of keys. clear are the patterns of the metadata keys that stay readable.
func New(keys Keys, limit time.Duration, clear []string) *Sealer {
	return &Sealer{keys: keys, limit: limit, clear: clear}
}

// IsClear reports whether the metadata key of a producer stays readable.
func (s *Sealer) IsClear(key string) bool {
	for _, pattern := range s.clear {
		if match(pattern, key) {
			return true
		}
	}
	return false
}

// match reports whether a text is of a pattern, in which * stands for any text.
func match(pattern, text string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, head)
	for ok {
		var part string
		if part, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(text, part)
		}
		_, text, ok = strings.Cut(text, part)
	}
	return false
}

// Seal returns the envelope of c for the letter b, under the current key. An error is ErrUnavailable.
func (s *Sealer) Seal(ctx context.Context, b Binding, c Content) ([]byte, error) {
	key, w, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	plain := c.plain()
	return s.close(&key, w, b, plain, w.fingerprint(b, plain))
}

func (s *Sealer) close(key *Key, w *working, b Binding, plain, fingerprint []byte) ([]byte, error) {
	if len(b.Topic) > maxBound || len(b.ID) > maxBound || b.Redrives < 0 {
		return nil, fmt.Errorf("seal: a topic or an id has more than %d bytes, or the count of redrives is negative",
			maxBound)
	}
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	header := appendHeader(key, fingerprint, nonce, b, len(plain))
	return w.aead.Seal(header, nonce, plain, header), nil
}

// Open returns the content of an envelope that belongs to the letter b.
func (s *Sealer) Open(ctx context.Context, b Binding, envelope []byte) (Content, error) {
	h, plain, err := s.open(ctx, b, envelope)
	if err != nil {
		return Content{}, err
	}
	c, ok := readContent(plain)
	if !ok {
		return Content{}, &Error{h.KeyID, ErrDamaged}
	}
	return c, nil
}

func (s *Sealer) open(ctx context.Context, b Binding, envelope []byte) (Header, []byte, error) {
	h, err := Parse(envelope)
	if err != nil {
		return h, nil, err
	}
	if s == nil {
		return h, nil, &Error{h.KeyID, ErrNoKeys}
	}
	w, err := s.find(ctx, &h)
	if err != nil {
		return h, nil, err
	}
	plain, err := w.aead.Open(nil, h.nonce, h.sealed, h.additional)
	if err != nil {
		return h, nil, &Error{h.KeyID, ErrDamaged}
	}
	if h.Binding != b {
		return h, nil, &Error{h.KeyID, fmt.Errorf("%w: it is that of message %q of topic %q, redriven %d times",
			ErrOtherLetter, bounded(h.ID), bounded(h.Topic), h.Redrives)}
	}
	return h, plain, nil
}

// Reseal returns the envelope under the current key. It reports false, and returns the envelope, if that is its key.
// The fingerprint stays as it is, so that the letter is recognised.
func (s *Sealer) Reseal(ctx context.Context, b Binding, envelope []byte) (resealed []byte, changed bool, err error) {
	h, plain, err := s.open(ctx, b, envelope)
	if err != nil {
		return nil, false, err
	}
	key, w, err := s.current(ctx)
	if err != nil {
		return nil, false, err
	}
	if key.ID == h.KeyID {
		return envelope, false, nil
	}
	resealed, err = s.close(&key, w, b, plain, h.Fingerprint)
	return resealed, err == nil, err
}

// CurrentID returns the id of the current key.
func (s *Sealer) CurrentID(ctx context.Context) (string, error) {
	if s == nil {
		return "", &Error{Err: ErrNoKeys}
	}
	key, _, err := s.current(ctx)
	return key.ID, err
}

func (s *Sealer) current(ctx context.Context) (key Key, w *working, err error) {
	if s == nil {
		return key, nil, &Error{Err: ErrNoKeys}
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	err = contained(func() (err error) { key, err = s.keys.Current(ctx); return err })
	if err == nil {
		err = key.Validate()
	}
	if err != nil {
		return Key{}, nil, fmt.Errorf("seal: the current key: %w", notNow(err))
	}
	w, err = workingKey(key.Secret)
	return key, w, err
}

func (s *Sealer) find(ctx context.Context, h *Header) (*working, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	var secret []byte
	err := contained(func() (err error) {
		secret, err = s.keys.Find(ctx, h.KeyID, h.Wrapped)
		return err
	})
	switch {
	case errors.Is(err, ErrUnknownKey):
		return nil, &Error{h.KeyID, err}
	case err == nil && len(secret) != SecretSize:
		return nil, &Error{h.KeyID,
			notNow(fmt.Errorf("the Keys returned %d bytes for the key: want %d", len(secret), SecretSize))}
	case err != nil:
		return nil, &Error{h.KeyID, notNow(err)}
	}
	return workingKey(secret)
}

// contained calls a method of Keys. A panic becomes an error: the key is not there now, and the process goes on.
func contained(ask func() error) (err error) {
	returned := false
	defer func() {
		if v := recover(); !returned { // v can be nil with GODEBUG=panicnil=1
			err = errors.New("seal.Keys: panic: " + boundedtext.Value(v, 500))
		}
	}()
	err = ask()
	returned = true
	return err
}

func notNow(err error) error { return unavailable{err} }

// unavailable marks an error of Keys as ErrUnavailable, and as an outage for all parts that hold messages during one.
type unavailable struct{ err error }

// MarksTransient is asked by package classify: this package does not compile it.
func (u unavailable) MarksTransient() {}

func (u unavailable) Error() string {
	return ErrUnavailable.Error() + ": " + boundedtext.Error(u.err, 500)
}
func (u unavailable) Unwrap() error        { return u.err }
func (u unavailable) Is(target error) bool { return target == ErrUnavailable }

func bounded(text string) string { return boundedtext.Text(text, 200) }

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

// What keys are derived for. Another version of the envelope has others.
const (
	forContent     = "spillway letter 1 content"
	forFingerprint = "spillway letter 1 fingerprint"
)

// working is a key at work.
type working struct {
	aead cipher.AEAD
	mac  []byte
}

// workingKey derives what a secret is used for, in some microseconds.
func workingKey(secret []byte) (*working, error) {
	w := &working{}
	content, err := hkdf.Key(sha256.New, secret, nil, forContent, SecretSize)
	if err == nil {
		w.mac, err = hkdf.Key(sha256.New, secret, nil, forFingerprint, SecretSize)
	}
	var block cipher.Block
	if err == nil {
		block, err = aes.NewCipher(content)
	}
	if err == nil {
		w.aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		return nil, fmt.Errorf("seal: derive keys: %w", err)
	}
	return w, nil
}

func (w *working) fingerprint(b Binding, plain []byte) []byte {
	mac := hmac.New(sha256.New, w.mac)
	mac.Write(appendBinding(nil, b))
	mac.Write(plain)
	return mac.Sum(nil)[:fingerprintSize]
}
