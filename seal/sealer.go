package seal

import (
	"errors"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/envelope"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// keysTimeout bounds each call of Keys: a message is held for as long.
const keysTimeout = 10 * time.Second

// Sealer seals letters, and opens them. It is safe for concurrent use. A nil *Sealer opens nothing.
type Sealer struct{ inside *envelope.Sealer }

// New returns a Sealer. clear are the keys of producers' metadata that stay readable in a sealed letter. A * stands for
// any text, such as in "tenant-*". Only by these can letters be filtered and found. Without them all of the producer's
// metadata is sealed.
func New(keys Keys, clear ...string) (*Sealer, error) {
	if safecall.IsNil(keys) {
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
