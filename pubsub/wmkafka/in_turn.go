package wmkafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// inTurn delivers the records of a partition, one handler at a time. While a failed message is placed elsewhere, it
// delivers the next one, and marks no offset behind the failed one.
type inTurn struct {
	sub    *subscription
	wake   chan struct{} // has an item if a message is being placed, or has been settled since, or the tenure has ended
	placed sync.WaitGroup
	quiet  bool // no message is being placed or has come back; of the goroutine of next

	mu      sync.Mutex
	marks   marks
	current *delivery   // whose handler runs
	back    []*delivery // nacked while they were placed, in the order of their offsets
	marker
}

func (s *subscription) consumeInTurn(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) {
	t := &inTurn{
		sub: s, marker: s.marker(session), wake: make(chan struct{}, 1),
		marks: marks{most: max(s.config.MaxPlacing, 1), mostBytes: s.config.maxPlacingBytes, ahead: maxInFlight},
	}
	defer t.placed.Wait() // for settleGrace at most, after the tenure
	ctx := s.tenure.work
	stop := context.AfterFunc(ctx, t.ring)
	defer stop()
	for d := t.next(ctx, claim); d != nil; d = t.next(ctx, claim) {
		if !t.handle(d) {
			return
		}
	}
}

// next returns what is delivered next: a message that came back, or else the next record. It is nil when the session
// has ended.
func (t *inTurn) next(ctx context.Context, claim sarama.ConsumerGroupClaim) *delivery {
	if t.quiet {
		if record := next(t.session, claim); record != nil {
			return t.first(ctx, record)
		}
		return nil
	}
	for t.session.Context().Err() == nil { // of two channels that are ready, select takes any
		d, full := t.returned()
		records := claim.Messages()
		switch {
		case d != nil:
			if !timing.Wait(t.session.Context(), time.Until(d.placement.due)) {
				return nil
			}
			if d = t.takeBack(); d != nil {
				return d
			}
			continue
		case full:
			records = nil
		}
		select {
		case <-t.session.Context().Done():
		case <-t.wake:
		case record := <-records:
			if record == nil {
				return nil
			}
			return t.first(ctx, record)
		}
	}
	return nil
}

// returned is the first message that came back. It reports whether there is no room for a further record.
func (t *inTurn) returned() (d *delivery, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.back) > 0 {
		d = t.back[0]
	}
	return d, t.marks.full()
}

// takeBack returns the first message that came back, for another delivery. It is nil if a message with a lower offset
// has come back, and has to wait.
func (t *inTurn) takeBack() *delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.back[0]
	if time.Until(d.placement.due) > 0 {
		return nil
	}
	t.back = t.back[1:]
	d.msg = d.msg.Copy()
	t.current = d
	return d
}

// first prepares the first delivery of a record.
func (t *inTurn) first(ctx context.Context, record *sarama.ConsumerMessage) *delivery {
	d := t.sub.deliver(ctx, record)
	if t.sub.config.MaxPlacing > 0 {
		d.turn = t
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.marks.take()
	t.current = d
	return d
}

// handle delivers a message until it is acked, or being placed. It reports false if the session has ended.
func (t *inTurn) handle(d *delivery) bool {
	for {
		if !d.send() {
			return false
		}
		outcome := d.settled(t.wake)
		if t.leave(d, outcome) {
			t.placed.Go(func() { t.await(d) })
			return true
		}
		d.cancel()
		switch outcome {
		case acked:
			if d.first.Load() {
				t.session.Commit()
			}
			t.commitMarked(&t.mu)
			return true
		case abandoned:
			d.abandon()
			return false
		}
		if !timing.Wait(t.session.Context(), d.pause()) {
			return false
		}
		t.repeat(d)
	}
}

// leave ends the turn of d's handler, unless d is being placed: then it ended before.
func (t *inTurn) leave(d *delivery, became outcome) (placing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != d {
		t.quiet = false
		return true
	}
	t.current = nil
	if became == acked {
		t.done(d)
	}
	t.quiet = len(t.marks.open) == 0
	return false
}

// repeat prepares another delivery of a message that was nacked by its handler.
func (t *inTurn) repeat(d *delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.msg = d.msg.Copy()
	t.current = d
}

// isPlacing reports whether d is being placed.
func (t *inTurn) isPlacing(d *delivery) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current != d
}

// placing ends the turn of d's handler, and returns what is closed when those before d with its key are placed.
func (t *inTurn) placing(d *delivery, msg *message.Message) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != d || d.msg != msg {
		return nil
	}
	if d.placement == nil {
		d.placement = t.marks.place(d.of.record.Offset, d.of.record.Key, sizeOf(d.of.record))
	}
	if d.first.Load() {
		time.AfterFunc(placing.FirstFor, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.goOn(d, msg)
		})
	} else {
		t.goOn(d, msg)
	}
	return d.placement.turn()
}

// goOn ends the turn of d's handler, unless it has ended. The caller holds mu.
func (t *inTurn) goOn(d *delivery, msg *message.Message) {
	if t.current == d && d.msg == msg {
		t.current = nil
		t.ring()
	}
}

// before returns what is closed when a message before d with its key is placed, or nil if it is d's turn.
func (t *inTurn) before(d *delivery) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return d.placement.turn()
}

// await waits until a message that is being placed is settled.
func (t *inTurn) await(d *delivery) {
	outcome := d.settled(d.of.Done())
	d.cancel()
	switch outcome {
	case acked:
		t.mu.Lock()
		t.done(d)
		t.mu.Unlock()
		t.commitMarked(&t.mu)
	case nacked:
		t.requeue(d)
	case abandoned:
		d.abandon()
	}
	t.ring()
}

// requeue notes that no sink took the message, or that it was requeued.
func (t *inTurn) requeue(d *delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.placement.due = time.Now().Add(d.pause())
	at, _ := slices.BinarySearchFunc(t.back, d.of.record.Offset, func(other *delivery, offset int64) int {
		return int(other.of.record.Offset - offset)
	})
	t.back = slices.Insert(t.back, at, d)
}

// ring wakes next and settled.
func (t *inTurn) ring() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// done marks what is done, now that d is. The caller holds mu.
func (t *inTurn) done(d *delivery) {
	if d.placement != nil {
		t.marks.confirm(d.placement)
	} else {
		t.marks.done(d.of.record.Offset)
	}
	t.marker.mark(d.of.record, t.marks.position())
}

// sizeOf is what a record holds of memory, about.
func sizeOf(record *sarama.ConsumerMessage) int {
	size := len(record.Key) + len(record.Value)
	for _, h := range record.Headers {
		size += len(h.Key) + len(h.Value)
	}
	return size
}
