package sequence

import (
	"context"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// Limits bound what is parked. The zero value has the defaults.
type Limits struct {
	Messages, All          int   // of a key, and of a source
	MessageBytes, AllBytes int64 // payloads, ids and keys, and 1 KiB for each message
}

// defaultLimits are what a source catches up with in minutes when its handler is repaired: a new owner reads one row
// for each key, and a key is drained one message at a time. What is behind them waits where it is cheaper: in the
// broker.
var defaultLimits = Limits{Messages: 10_000, All: 100_000, MessageBytes: 256 << 20, AllBytes: 1 << 30}

// Admit waits until a further message of the lane can be parked, if that should be necessary. A subscriber calls it
// before it takes the message up, in no lane: what is parked must be drained meanwhile. The source then waits, and
// nothing is overtaken. The messages that were taken up before are parked behind the limit. It reports false if ctx
// ends.
func (o *Owner) Admit(ctx context.Context, lane []byte) bool {
	if !o.IsFull(lane) {
		return true
	}
	o.SayFull(true)
	for o.isFull(lane) {
		again := time.NewTimer(lookEvery)
		select {
		case <-o.room:
		case <-again.C: // a person or an erasure may have deleted some
			o.recount(ctx)
		case <-ctx.Done():
		}
		again.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
	o.SayFull(false)
	return true
}

// IsFull reports whether no further message of the lane can be parked now, for a subscriber that cannot wait in Admit.
func (o *Owner) IsFull(lane []byte) bool { return o.count.Load() > 0 && o.isFull(lane) }

// SayFull writes to the log that the source waits for room, or has it again.
func (o *Owner) SayFull(full bool) {
	event := logging.SequencesHaveRoom
	if full {
		event = logging.SequencesFull
	}
	event.Write(o.Logger, nil, o.fields())
}

func (o *Owner) isFull(lane []byte) bool {
	most := o.Limits
	if most == (Limits{}) {
		most = defaultLimits
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.total.messages >= most.All || o.total.bytes >= most.AllBytes {
		return true
	}
	l := o.lanes[string(lane)]
	return lane != nil && l != nil && (l.messages >= most.Messages || l.bytes >= most.MessageBytes)
}

// addLocked changes the load of a lane. A lost answer can have let a row be counted twice, until the next count.
func (o *Owner) addLocked(l *Lane, rows load) {
	before := l.load
	l.messages, l.bytes = max(0, l.messages+rows.messages), max(0, l.bytes+rows.bytes)
	o.total.messages += l.messages - before.messages
	o.total.bytes += l.bytes - before.bytes
	if rows.messages < 0 {
		select {
		case o.room <- struct{}{}:
		default:
		}
	}
}

// recount reads from the database how much is parked.
func (o *Owner) recount(ctx context.Context) {
	all, err := o.store.Load(ctx, o.of)
	if err != nil {
		return // a drain says so
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	found := make(map[string]load, len(all))
	for _, w := range all {
		found[string(w.Lane)] = w.load
	}
	for key, l := range o.lanes {
		now := found[key]
		o.addLocked(l, load{now.messages - l.messages, now.bytes - l.bytes})
	}
}
