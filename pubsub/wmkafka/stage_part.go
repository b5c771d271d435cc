package wmkafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold/due"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// part is a partition of a stage topic. It takes records, and hands over what is due, with one goroutine for each message
// that is handled. Waiting records stay records, until they are near the head of their partition and due.
type part struct {
	config    *SubscriberConfig
	denials   *denials
	group     string
	members   sarama.ConsumerGroup // whose partitions are paused
	topic     *stageTopic
	partition int32
	taking    context.Context // of the session
	ctx       context.Context // of messages
	wake      chan struct{}   // of consume; has room for one
	flights   sync.WaitGroup
	committed int64 // guarded by the session

	mu      sync.Mutex // guards what follows, and its flights
	next    int64      // the offset behind the last record; negative before the first
	records []*flight  // in order, from the first unacked one on
	taken   int        // those of records that are, or were, in the window; the backlog is behind them
	waiting []*flight  // in the window, and not handled: not due, or nacked
	running int        // in the window, and handled
	bytes   int        // of the backlog
	held    int        // bytes of what was taken from it, and is unacked
	due     time.Time  // when the next record of the window is; zero for none
	looks   time.Time  // when consume looks again
	paused  bool
}

const (
	// usualBacklog is how much of a partition that waits is held behind its window, and mostBacklog how much of one
	// whose messages are due: sarama looks every 100 ms whether a partition is still paused.
	usualBacklog, mostBacklog = 128 << 10, 2 << 20
	// dueSoon is when messages are due of which more are fetched.
	dueSoon = 300 * time.Millisecond
	// far is later than anything is due.
	far = 24 * time.Hour
)

// consume takes records, and hands over what is due, until the session ends. It takes each record at once: sarama lets
// all partitions wait for one whose records are not taken.
func (p *part) consume(records <-chan *sarama.ConsumerMessage) {
	timer := time.NewTimer(far)
	defer timer.Stop()
	for {
		timer.Reset(p.look())
		select {
		case record, ok := <-records:
			if !ok {
				return
			}
			p.take(record)
			p.takeMore(records)
		case <-timer.C:
		case <-p.wake:
		case <-p.taking.Done():
			return
		}
	}
}

// finish returns when all that was handed over is settled, or in the grace after work has ended.
func (p *part) finish(work context.Context) {
	p.mu.Lock() // nothing is launched after that
	//lint:ignore SA2001 what was launched before has been counted
	p.mu.Unlock()
	landed := make(chan struct{})
	go func() { p.flights.Wait(); close(landed) }()
	select {
	case <-landed:
		return
	case <-work.Done():
	}
	grace := time.NewTimer(p.config.settleGrace)
	defer grace.Stop()
	select {
	case <-landed:
	case <-grace.C:
	}
}

// takeMore takes the records that are there.
func (p *part) takeMore(records <-chan *sarama.ConsumerMessage) {
	for range cap(records) {
		select {
		case record, ok := <-records:
			if !ok {
				return
			}
			p.take(record)
		default:
			return
		}
	}
}

func (p *part) take(record *sarama.ConsumerMessage) {
	p.denials.note(p.config.Logger, p.topic.name, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &flight{of: p, record: record, size: sizeOf(record) + 100, arrived: time.Now()}
	p.next = record.Offset + 1
	p.records = append(p.records, f)
	p.bytes += f.size
}

// look hands over what is due, and returns when to look again.
func (p *part) look() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.launch(now)
	next := far
	if !p.due.IsZero() {
		next = p.due.Sub(now)
	}
	p.pause(next)
	p.looks = now.Add(next)
	return next
}

// pause stops fetching if there is enough, and goes on when there is not.
func (p *part) pause(next time.Duration) {
	most := usualBacklog
	if next < dueSoon || p.running > 0 {
		most = mostBacklog
	}
	topic := map[string][]int32{p.topic.name: {p.partition}}
	switch {
	case !p.paused && p.bytes >= most:
		p.paused = true
		p.members.Pause(topic)
	case p.paused && p.bytes < most/2:
		p.paused = false
		p.members.Resume(topic)
	}
}

// mark returns the offset behind all that is done.
func (p *part) mark() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.records) > 0 {
		return p.records[0].record.Offset
	}
	return p.next
}

// launch hands over what is due in the window. The caller holds mu.
func (p *part) launch(now time.Time) {
	p.due = time.Time{}
	if p.taking.Err() != nil {
		return
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(f *flight) bool { return p.begin(f, now) })
	for p.hasNext() {
		f := p.records[p.taken]
		p.taken++
		p.bytes -= f.size
		p.held += f.size
		f.msg = read(p.config.Unmarshaler, f.record)
		p.attempt(f)
		if f.until = p.until(f); !p.begin(f, now) {
			p.waiting = append(p.waiting, f)
		}
	}
}

// hasNext reports whether the next record may enter the window. Messages that are placed elsewhere, or acked, leave
// room in it, but hold up the mark behind them: all of them can be handled again after a crash.
func (p *part) hasNext() bool {
	c := p.config
	return p.taken < len(p.records) && p.running+len(p.waiting) < c.InFlight &&
		p.taken < max(c.InFlight, c.MaxPlacing) && p.held < c.maxPlacingBytes
}

// begin hands a message over if it is due, and there is room. The caller holds mu.
func (p *part) begin(f *flight, now time.Time) bool {
	switch {
	case f.until.After(now):
		if p.due.IsZero() || f.until.Before(p.due) {
			p.due = f.until
		}
		return false
	case p.running >= p.config.InFlight: // one that was nacked by what placed it
		return false
	}
	f.handled = true
	p.running++
	p.flights.Add(1)
	go p.fly(f, f.msg)
	return true
}

// attempt gives the message of a flight its context.
func (p *part) attempt(f *flight) {
	f.first = false
	f.now = &attempt{of: &recordContext{Context: due.WithArrived(p.ctx, f.arrived), record: f.record, group: p.group, delivery: f}}
	f.msg.SetContext(f.now)
}

func (p *part) until(f *flight) (until time.Time) {
	safecall.Hook(p.config.Logger, "due.Stage.Until",
		func() { until = p.topic.stage.Until(f.msg, f.arrived) })
	return until
}

// flight is a record that waits, or whose message is handled or placed elsewhere. Its part's lock guards it.
type flight struct {
	of      *part
	record  *sarama.ConsumerMessage
	size    int
	arrived time.Time

	msg    *message.Message // nil until it is in the window, and when it is acked
	now    *attempt         // the context of msg
	until  time.Time
	waited time.Duration // before this delivery

	handled bool // and neither placed elsewhere nor settled
	first   bool // it is acked before the next one takes its place
	acked   bool
}

var (
	_ placing.Delivery = (*flight)(nil)
	_ placing.Ordered  = (*flight)(nil)
	_ placing.Aside    = (*flight)(nil)
)

// Placing lets the next message be handled while this one is placed elsewhere. This one is acked after the confirm, and
// nothing behind it is marked before that. One message at a time keeps its order, and waits.
func (f *flight) Placing(_ context.Context, msg *message.Message) {
	p, c := f.of, f.of.config
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.msg == msg && f.handled && !f.first && c.InFlight > 1 && c.MaxPlacing > 0 {
		p.leaveWindow(f)
	}
}

// Aside reports whether nothing waits for the message to be placed.
func (f *flight) Aside() bool {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	return !f.handled
}

// PlaceFirst lets the next message wait until this one is acked.
func (f *flight) PlaceFirst() {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.first = true
}

// fly hands a message over until it is settled.
func (p *part) fly(f *flight, msg *message.Message) {
	defer p.flights.Done()
	defer p.settle(f, msg) // even if the handler ends the goroutine
	p.topic.stage.Take(msg)
}

// settle makes room for the next messages. A message that is not acked is handed over again, with backoff.
func (p *part) settle(f *flight, msg *message.Message) {
	f.now.cancel()
	acked := false
	select {
	case <-msg.Acked():
		acked = true
	default:
		if p.taking.Err() != nil {
			logging.SessionEnded.Write(p.config.Logger, nil, logging.Fields{
				logging.Topic: f.record.Topic, logging.Partition: f.record.Partition, logging.Offset: f.record.Offset,
			})
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if acked {
		p.land(f)
	} else {
		c := p.config
		f.waited = min(max(2*f.waited, c.nackBackoff), c.maxNackBackoff)
		f.until = time.Now().Add(f.waited)
		f.msg = msg.Copy()
		p.attempt(f)
		p.waiting = append(p.waiting, f)
	}
	p.leaveWindow(f)
}

// land notes an ack. The caller holds mu.
func (p *part) land(f *flight) {
	f.acked, f.record, f.msg, f.now = true, nil, nil, nil // those in front may take long
	p.held -= f.size
	for len(p.records) > 0 && p.records[0].acked {
		p.records[0] = nil
		p.records = p.records[1:]
		p.taken--
	}
}

// leaveWindow makes room for the next message. The caller holds mu.
func (p *part) leaveWindow(f *flight) {
	if f.handled {
		f.handled = false
		p.running--
	}
	p.launch(time.Now())
	if p.paused || !p.due.IsZero() && p.due.Before(p.looks) {
		p.ring()
	}
}

// ring makes consume look again.
func (p *part) ring() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
