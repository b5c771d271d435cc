// Package recent remembers something of the messages that had trouble lately: when a store first refused one, for how
// long a handler has put one off. A Memory is small and of this process alone. It holds at most Most messages, and
// forgets a message that had no trouble for some time. So a message that comes again much later is a new one, and
// nothing here needs cleaning up.
package recent

import (
	"hash/fnv"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
)

// Most is the number of messages that a Memory holds.
const Most = 1000

// Message identifies a message of a handler, or of a place.
type Message struct{ from, id string }

// Of identifies c's message by what it was on entry, which a handler cannot change. A message without an id is
// identified by its payload.
func Of(c *chain.Call) Message {
	handler := message.HandlerNameFromCtx(c.Ctx)
	if id := c.ID(); id != "" {
		return Message{handler, id}
	}
	sum := fnv.New64a()
	_, _ = sum.Write(c.Msg.Payload)
	return Message{handler, strconv.FormatUint(sum.Sum64(), 16)}
}

// Named identifies a message by its id and where it came from.
func Named(from, id string) Message { return Message{from, id} }

// Memory remembers a T for each message. It is not safe for concurrent use.
type Memory[T any] struct {
	kept  time.Duration
	of    map[Message]*remembered[T]
	swept time.Time
}

type remembered[T any] struct {
	value T
	last  time.Time
}

// For returns a Memory that forgets a message kept after its last trouble.
func For[T any](kept time.Duration) Memory[T] { return Memory[T]{kept: kept} }

// Note remembers that a message has trouble now. It returns what is remembered of it, which is the zero value for a new
// one.
func (m *Memory[T]) Note(of Message, now time.Time) *T {
	one := m.of[of]
	if one == nil || now.Sub(one.last) > m.kept {
		m.makeRoom(now)
		one = new(remembered[T])
		m.of[of] = one
	}
	one.last = now
	return &one.value
}

// Get returns what is remembered of a message, or nil.
func (m *Memory[T]) Get(of Message) *T {
	if one := m.of[of]; one != nil {
		return &one.value
	}
	return nil
}

// Forget forgets a message.
func (m *Memory[T]) Forget(of Message) { delete(m.of, of) }

// Len returns how many messages are remembered.
func (m *Memory[T]) Len() int { return len(m.of) }

// sweepEvery bounds how often Sweep looks at all messages.
const sweepEvery = time.Minute

// Sweep forgets the messages that had no trouble for long enough. It does so at most once a minute.
func (m *Memory[T]) Sweep(now time.Time) {
	if now.Sub(m.swept) <= sweepEvery {
		return
	}
	m.swept = now
	for of, one := range m.of {
		if now.Sub(one.last) > m.kept {
			delete(m.of, of)
		}
	}
}

// makeRoom forgets old messages, and if these are too few any others.
func (m *Memory[T]) makeRoom(now time.Time) {
	if m.of == nil {
		m.of = make(map[Message]*remembered[T])
	}
	if len(m.of) < Most {
		return
	}
	m.Sweep(now)
	for of := range m.of {
		if len(m.of) < Most {
			return
		}
		delete(m.of, of)
	}
}
