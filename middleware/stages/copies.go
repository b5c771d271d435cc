package stages

import (
	"crypto/rand"
	"encoding/hex"
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/poison"
)

// copies knows which messages of stage topics are held or handled here, and which ones were settled lately. A broker
// delivers a message again that has no ack for too long, and a client can have such a copy in its buffer when the
// message is acked.
type copies struct {
	mu     sync.Mutex
	held   map[identity]*held
	done   map[identity]time.Duration // acked messages, and how long they waited here
	before map[identity]time.Duration // those of the time before
	turned time.Time
}

const (
	// remembered is how long an acked message is remembered at least, and mostRemembered bounds how many of them.
	remembered     = 10 * time.Minute
	mostRemembered = 50_000
)

// identity is a message of a stage topic: 128 bits of a hash.
type identity [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// held is a message that waits in a stage or is handled.
type held struct {
	since time.Time
	// settled is closed when the message is settled, and outcome then says how.
	settled chan struct{}
	outcome outcome
}

type outcome int

const (
	abandoned outcome = iota // its context ended: its ack, if there is one, may not have reached the broker
	acked
	requeued
)

// enter notes that a message is held. If a copy of it is held, or was acked, enter returns that copy, or how long it
// waited.
func (c *copies) enter(id identity) (own, other *held, waited time.Duration, wasAcked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other = c.held[id]; other != nil {
		return nil, other, 0, false
	}
	if waited, wasAcked = c.done[id]; wasAcked {
		return nil, nil, waited, true
	}
	if waited, wasAcked = c.before[id]; wasAcked {
		return nil, nil, waited, true
	}
	own = &held{since: time.Now(), settled: make(chan struct{})}
	if c.held == nil {
		c.held = make(map[identity]*held)
	}
	c.held[id] = own
	return own, nil, 0, false
}

// leave notes what became of a message that enter returned. keep is false for a message without an entry: a message
// with the same content can be another one.
func (c *copies) leave(id identity, own *held, became outcome, waited time.Duration, keep bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, id)
	if became == acked && keep {
		if now := time.Now(); c.done == nil || len(c.done) >= mostRemembered || now.Sub(c.turned) > remembered {
			c.before, c.done, c.turned = c.done, make(map[identity]time.Duration), now
		}
		c.done[id] = waited
	}
	own.outcome = became
	close(own.settled)
}

// identify returns the identity of a message of the topic. named means that the message has an entry: then it is one
// that was published once. A message without entry and id has none: messages with equal payloads can be different ones.
func (t *stageTopic) identify(msg *message.Message) (id identity, named, ok bool) {
	entry := msg.Metadata[poison.KeyRetryEntry]
	if entry == "" && msg.UUID == "" {
		return identity{}, false, false
	}
	for i := range id {
		var h maphash.Hash
		h.SetSeed(seeds[i])
		for _, s := range []string{t.topic, t.of.name, entry, msg.UUID} {
			field(&h, s)
		}
		_, _ = h.Write(msg.Payload)
		id[i] = h.Sum64()
		if entry != "" {
			continue // a broker can add metadata when it redelivers
		}
		for key, value := range msg.Metadata { // in any order
			if chain.Added(key, value) {
				continue
			}
			h.Reset()
			field(&h, key)
			field(&h, value)
			id[i] += h.Sum64()
		}
	}
	return id, entry != "", true
}

func field(h *maphash.Hash, s string) {
	maphash.WriteComparable(h, len(s))
	_, _ = h.WriteString(s)
}

// newEntry names one publishing of a message to a stage.
func newEntry() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// nextEntry names the next round of a message with this entry. It is the same if the round is published again, because
// the publisher did not confirm it.
func nextEntry(entry string) string {
	if entry == "" || len(entry) > 64 {
		return newEntry()
	}
	name, round, _ := strings.Cut(entry, "-")
	n, _ := strconv.ParseUint(round, 10, 32)
	return name + "-" + strconv.FormatUint(n+1, 10)
}
