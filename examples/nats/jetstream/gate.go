package jetstream

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"

	"github.com/watermill-spillway/spillway/poison"
)

// nakDelay is how soon a message that was requeued comes again.
const nakDelay = 250 * time.Millisecond

var errShut = errors.New("the subscription ends, and the message was given back")

// gate is the unmarshaler of one subscription. Watermill-nats calls it for each message before it hands the message
// out, so it is the place to stop: at the end of a subscription watermill-nats closes a channel to which it may be
// sending, which panics, and drops what the client has buffered.
type gate struct {
	nats.Unmarshaler
	mu     sync.Mutex
	shut   bool
	inside int       // messages that passed and that watermill-nats has not settled
	last   time.Time // when a message came
}

// Unmarshal never fails for what the message is. What the marshaler cannot read becomes a message that poison.Queue
// dead-letters, with the bytes as its payload.
func (g *gate) Unmarshal(raw *natsgo.Msg) (*message.Message, error) {
	g.mu.Lock()
	g.last = time.Now()
	shut := g.shut
	if !shut {
		g.inside++
	}
	g.mu.Unlock()
	if shut {
		return nil, errors.Join(errShut, raw.NakWithDelay(nakDelay))
	}
	msg, err := g.Unmarshaler.Unmarshal(raw)
	if err == nil && msg != nil {
		return msg, nil
	}
	msg = unread(idOf(raw), raw)
	poison.MarkUnreadable(msg, err)
	return msg, nil
}

// unread is the message of what the marshaler cannot read.
func unread(id string, raw *natsgo.Msg) *message.Message {
	msg := message.NewMessage(id, raw.Data)
	for key, values := range raw.Header {
		if len(values) > 0 && key != nats.WatermillUUIDHdr {
			msg.Metadata.Set(key, values[len(values)-1])
		}
	}
	return msg
}

// settled notes that watermill-nats has done with a message.
func (g *gate) settled() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
}

// close gives back all further messages.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.last = true, time.Now()
}

// quiet is how long nothing comes from the client when it has buffered nothing more.
const quiet = 50 * time.Millisecond

// empty reports whether all messages are settled, and nothing more comes.
func (g *gate) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside == 0 && time.Since(g.last) > quiet
}

// idOf is the same whenever the message is delivered: its own id, or else its place in the stream.
func idOf(raw *natsgo.Msg) string {
	if id := raw.Header.Get(nats.WatermillUUIDHdr); id != "" {
		return id
	}
	if place, err := raw.Metadata(); err == nil {
		return fmt.Sprintf("%s-%d", place.Stream, place.Sequence.Stream)
	}
	return watermill.NewUUID()
}
