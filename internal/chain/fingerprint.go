package chain

import (
	"hash/maphash"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// Fingerprint is a hash of a message as it was sent: its id, payload and metadata. It is of this process.
type Fingerprint [2]uint64

var fingerprintSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// Fingerprint returns that of the message. It reports false for a message without an id: messages with equal payloads
// can be different ones.
func (c *Call) Fingerprint() (of Fingerprint, ok bool) {
	if c.uuid == "" {
		return of, false
	}
	for i := range of {
		var h maphash.Hash
		h.SetSeed(fingerprintSeeds[i])
		maphash.WriteComparable(&h, c.uuid)
		_, _ = h.Write(c.payload)
		if c.shared {
			_, _ = h.Write(c.arrived)
		}
		of[i] = h.Sum64()
		for _, p := range c.metadata { // in any order
			if foreign.Added(p.key, p.value) {
				continue
			}
			h.Reset()
			maphash.WriteComparable(&h, p)
			of[i] += h.Sum64()
		}
	}
	return of, true
}
