package envelope

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
)

// What keys are derived for. Another version of the envelope has others.
const (
	forContent     = "spillway letter 1 content"
	forFingerprint = "spillway letter 1 fingerprint"
)

// working is a key at work.
type working struct {
	secret []byte
	aead   cipher.AEAD
	mac    []byte
}

// working derives what a secret is used for, unless it was the last one.
func (s *Sealer) working(secret []byte) (*working, error) {
	if w := s.cached.Load(); w != nil && subtle.ConstantTimeCompare(w.secret, secret) == 1 {
		return w, nil
	}
	w := &working{secret: append([]byte(nil), secret...)}
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
	s.cached.Store(w)
	return w, nil
}

func (w *working) fingerprint(b Binding, plain []byte) []byte {
	mac := hmac.New(sha256.New, w.mac)
	mac.Write(appendBinding(nil, b))
	mac.Write(plain)
	return mac.Sum(nil)[:fingerprintSize]
}
