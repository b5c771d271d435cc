package chain

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
)

// Call is one message on its way through the chain. It is pooled: without Detach, do not keep it, or a slice of its
// bytes, after the handler returned.
type Call struct {
	// Msg is the message that the handler gets.
	Msg *message.Message
	// Ctx is the message's context as it was on entry.
	Ctx context.Context
	// Reentry is not nil if the message comes out of a retry stage.
	Reentry *Reentry

	// Lane is what delivers the message if the messages of its key come one at a time, or nil.
	Lane placing.Laned

	// Attempts counts the calls of the handler, the current one included. Only Retry writes it.
	Attempts int
	// Failed counts the failed attempts, and FirstFailed is when the first one failed. Only Retry writes them.
	Failed      int
	FirstFailed time.Time
	// Trace is the observe.Tracer's text for the latest attempt, if there is a Tracer and the attempt failed. Only
	// package attempt writes it.
	Trace string
	// Doubted means that the breaker lets further attempts of this delivery begin at once, and holds the message only if
	// an error says unavailable. Only the breaker writes it.
	Doubted bool

	held   time.Duration
	stages Stages

	uuid     string
	metadata []pair
	nilMeta  bool
	arrived  message.Payload // the slice that arrived, whose bytes the handler may write into
	payload  []byte          // a copy of those bytes
	detached bool

	waits    context.Context // nil until it is asked for
	endWaits context.CancelFunc

	published []func()
}

type pair struct{ key, value string }

// KeyRedriveCount is the metadata key that says how often a message was redriven.
const KeyRedriveCount = "x-redrive-count"

// Sequence is where a message stands among those of its key, if their order is kept: a *sequence.Delivery.
type Sequence interface {
	// Settle writes that the message of c ended without an effect, before the next one of its key may begin. It returns
	// the outputs of a message that had one after all. An error gives the message back: its context has ended.
	Settle(c *Call) ([]*message.Message, error)
}

// Sequence returns that of the message, or nil if there is no order.
func (c *Call) Sequence() Sequence {
	if lane, ok := c.Lane.(interface{ Sequence() Sequence }); ok {
		return lane.Sequence()
	}
	return nil
}

// Held returns how long parts, or the message's stage, held the message without an attempt. A retry does not count it
// as time spent. A part that holds the message again counts it against hold.MaxHold.
func (c *Call) Held() time.Duration { return c.held }

// AddHeld is called by a part that held the message.
func (c *Call) AddHeld(d time.Duration) { c.held += d }

// Stages is what the parts further in ask the stages of a handler.
type Stages interface {
	// Has reports whether the handler of c has stages, in which its messages are handled again later.
	Has(c *Call) bool
	// HasNext reports whether a failure with this verdict goes to a next stage.
	HasNext(c *Call, v classify.Verdict) bool
}

// Redriven reports whether the message was redriven.
func (c *Call) Redriven() bool {
	return len(c.Msg.Metadata) > 0 && c.Msg.Metadata[KeyRedriveCount] != ""
}

// EnterStages is called by the part that has the stages, for the parts further in.
func (c *Call) EnterStages(s Stages) { c.stages = s }

// HasStages reports whether the handler has stages around this part.
func (c *Call) HasStages() bool { return c.stages != nil && c.stages.Has(c) }

// HasNextStage reports whether a failure with this verdict goes to a next stage, so that no part need wait. Without a
// next stage the failure would be dead-lettered.
func (c *Call) HasNextStage(v classify.Verdict) bool {
	return c.stages != nil && c.stages.HasNext(c, v)
}

const (
	maxPooledPayload = 64 << 10
	maxPooledPairs   = 256
)

var calls = sync.Pool{New: func() any { return new(Call) }}

func begin(msg *message.Message) *Call {
	c := calls.Get().(*Call)
	c.Msg, c.Ctx = msg, msg.Context()
	c.uuid = msg.UUID
	c.nilMeta = msg.Metadata == nil
	if n := len(msg.Metadata); n > 0 { // a third of what a message costs: measure a change here
		if cap(c.metadata) < n {
			c.metadata = make([]pair, n)
		}
		metadata, i := c.metadata[:n], 0
		for k, v := range msg.Metadata {
			if i < len(metadata) { // an index costs less than append
				metadata[i] = pair{k, v}
			}
			i++
		}
		c.metadata = metadata
	}
	c.arrived = msg.Payload
	c.payload = append(c.payload[:0], msg.Payload...)
	return c
}

// Keep takes the snapshot of a message outside of a chain. Call Release once.
func Keep(msg *message.Message) *Call {
	c := begin(msg)
	c.Detach()
	return c
}

// end releases the call, unless it is detached.
func (c *Call) end() {
	if c.detached {
		return
	}
	c.Release()
}

// Detach keeps the call beyond the return of the chain. Call Release once, or leave the call to the garbage collector.
func (c *Call) Detach() { c.detached = true }

// Release returns the call to the pool.
func (c *Call) Release() {
	if c.endWaits != nil {
		c.endWaits()
	}
	if cap(c.payload) > maxPooledPayload {
		c.payload = nil
	}
	if cap(c.metadata) > maxPooledPairs {
		c.metadata = nil
	}
	// The strings and bytes that stay behind are overwritten by the next message, or go with the pool at the next
	// collection.
	*c = Call{metadata: c.metadata[:0], payload: c.payload[:0]}
	calls.Put(c)
}

// Restore makes the message what it was on entry: id, metadata, payload and context. It undoes a handler's writes into
// the payload in place, because a subscriber may redeliver the same bytes.
func (c *Call) Restore() {
	m := c.Msg
	m.UUID = c.uuid
	if !c.sameMetadata() {
		m.Metadata = c.copyMetadata()
	}
	m.Payload = c.arrived
	if !bytes.Equal(c.arrived, c.payload) {
		copy(c.arrived, c.payload)
	}
	m.SetContext(c.Ctx)
}

// Original returns a copy of the message as it was sent: as it arrived, with the context that it had, and without what
// brokers and adapters added on the way. The copy shares nothing with the call.
func (c *Call) Original() *message.Message {
	var payload message.Payload
	if c.arrived != nil { // an empty payload stays empty: brokers distinguish it from none
		payload = append(message.Payload{}, c.payload...)
	}
	original := message.NewMessageWithContext(c.Ctx, c.uuid, payload)
	if !c.nilMeta {
		original.Metadata = c.copyMetadata()
		Strip(original.Metadata)
	}
	return original
}

// ID returns the id that the message had on entry.
func (c *Call) ID() string { return c.uuid }

// Arrived returns the value that the metadata key had on entry.
func (c *Call) Arrived(key string) string {
	for i := range c.metadata {
		if c.metadata[i].key == key {
			return c.metadata[i].value
		}
	}
	return ""
}

func (c *Call) sameMetadata() bool {
	if (c.Msg.Metadata == nil) != c.nilMeta || len(c.Msg.Metadata) != len(c.metadata) {
		return false
	}
	for _, p := range c.metadata {
		if v, ok := c.Msg.Metadata[p.key]; !ok || v != p.value {
			return false
		}
	}
	return true
}

func (c *Call) copyMetadata() message.Metadata {
	if c.nilMeta {
		return nil
	}
	metadata := make(message.Metadata, len(c.metadata))
	maps.Insert(metadata, c.pairs)
	return metadata
}

func (c *Call) pairs(yield func(string, string) bool) {
	for _, p := range c.metadata {
		if !yield(p.key, p.value) {
			return
		}
	}
}

// OnPublished calls f after all outputs of the handler were published. Only outputs.Outputs sees that: without it f
// is not called.
func (c *Call) OnPublished(f func()) { c.published = append(c.published, f) }

// Published runs the functions of OnPublished.
func (c *Call) Published() {
	for _, f := range c.published {
		f()
	}
	c.published = nil
}
