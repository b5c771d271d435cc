package notify

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/observe/notify/internal/ledger"
)

// outlet sends notices to one sink, one after another.
type outlet struct {
	n      *Notifier
	number int
	sink   Sink
	sent   *sent
	queue  chan *parcel
	missed atomic.Int64

	ctx     context.Context // ends when the router has waited for long enough
	end     context.CancelFunc
	ended   chan struct{}
	refuses bool
}

// maxRetryAfter is the longest wait that a sink can ask for.
const maxRetryAfter = 10 * time.Minute

func newOutlet(n *Notifier, number int, sink Sink, sent *sent) *outlet {
	o := &outlet{n: n, number: number, sink: sink, sent: sent, queue: make(chan *parcel, n.pace.queue),
		ended: make(chan struct{})}
	o.ctx, o.end = context.WithCancel(context.Background())
	go func() {
		defer close(o.ended)
		for p := range o.queue {
			o.deliver(p)
		}
	}()
	return o
}

// offer queues a notice, or drops it if the queue is full.
func (o *outlet) offer(p *parcel) {
	select {
	case o.queue <- p:
		return
	default:
	}
	if o.missed.Add(1) == 1 {
		eventNoticeQueueFull.Write(o.n.logger(), errFull, o.fields(p))
	}
	o.sent.done(p, false)
}

var errFull = errors.New("the queue of its notices is full: it is slower than the notices, or does not answer")

// finish waits for the sink until ctx ends, and then interrupts it. A sink that goes on nevertheless is left behind.
func (o *outlet) finish(ctx context.Context) {
	close(o.queue)
	defer o.end()
	select {
	case <-o.ended:
		return
	case <-ctx.Done():
	}
	o.end()
	left := time.NewTimer(time.Second)
	defer left.Stop()
	select {
	case <-o.ended:
	case <-left.C:
		eventNoticeSinkHangs.Write(o.n.logger(), context.DeadlineExceeded, logging.Fields{"sink": o.number})
	}
}

// deliver calls the sink until it accepts the notice, or the notice is given up.
func (o *outlet) deliver(p *parcel) {
	waits := backoff.NewExponentialBackOff(backoff.WithInitialInterval(o.n.pace.retry), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(time.Minute), backoff.WithMaxElapsedTime(0))
	for {
		if o.ctx.Err() != nil {
			o.interrupted(p)
			return
		}
		missed := o.missed.Load()
		notice := p.notice
		notice.Missed = int(missed)
		o.sent.begin(p)
		err := safecall.Call("the sink", func() error { return o.sink(o.ctx, notice) })
		if err == nil {
			o.missed.Add(-missed)
			o.accepts(p)
			return
		}
		if o.ctx.Err() != nil {
			o.interrupted(p)
			return
		}
		verdict := o.judge(err)
		pause := max(waits.NextBackOff(), min(verdict.RetryAfter, maxRetryAfter))
		if never := refusesForGood(verdict); never || time.Since(p.made)+pause > o.n.pace.giveUp {
			o.missed.Add(1)
			eventNoticeGivenUp.Write(o.n.logger(), o.cause(err), o.fields(p))
			o.sent.done(p, false)
			return
		}
		o.log(err, p)
		timing.Wait(o.ctx, pause)
	}
}

// refusesForGood reports whether to try again makes no sense.
func refusesForGood(v classify.Verdict) bool {
	return v.Class == classify.ClassPermanent || v.Class == classify.ClassInvalid || v.Class == classify.ClassDiscard
}

// judge says what an error of the sink means. A panic can have been an accident of the moment: it is tried again.
func (o *outlet) judge(err error) classify.Verdict {
	var panicked *classify.PanicError
	if errors.As(err, &panicked) {
		return classify.Verdict{Class: classify.ClassTransient}
	}
	return attempts.Of(nil, err).Verdict // by the built-in knowledge
}

func (o *outlet) interrupted(p *parcel) {
	eventNoticeInterrupted.Write(o.n.logger(), nil, o.fields(p))
	o.sent.done(p, true)
}

func (o *outlet) accepts(p *parcel) {
	if o.refuses {
		o.refuses = false
		eventNoticeSinkBack.Write(o.n.logger(), nil, o.fields(p))
	}
	o.sent.done(p, false)
}

// log writes one line when a sink begins to refuse.
func (o *outlet) log(err error, p *parcel) {
	if o.refuses {
		return
	}
	o.refuses = true
	eventNoticeSinkUnavailable.Write(o.n.logger(), o.cause(err), o.fields(p))
}

func (o *outlet) cause(err error) error {
	return logging.Cause(line(o.n.config.Privacy.Text(boundedtext.Error(err, maxMasked)), maxDescription))
}

func (o *outlet) fields(p *parcel) logging.Fields {
	return logging.Fields{"sink": o.number, "notice": p.notice.ID, "kind": string(p.notice.Kind),
		"status": string(p.notice.Status), logging.CauseID: p.notice.Cause}
}

// parcel is a notice on its way to the sinks.
type parcel struct {
	notice Notice
	from   *ledger.Ledger
	t      ledger.Telling
	made   time.Time

	// of sent, under its lock
	open   int  // sinks that are not through with it
	begun  bool // a sink was called with it
	unsent bool // the router closed before a sink was through
}

// sent knows the notices whose leases the instance has.
type sent struct {
	mu      sync.Mutex
	parcels map[*parcel]bool
}

func newSent() *sent { return &sent{parcels: map[*parcel]bool{}} }

func (s *sent) add(in *ledger.Ledger, t ledger.Telling, notice Notice, sinks int) *parcel {
	p := &parcel{notice: notice, from: in, t: t, made: time.Now(), open: sinks}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parcels[p] = true
	return p
}

// has reports whether a notice is on its way.
func (s *sent) has(t ledger.Telling) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.parcels {
		if p.t.Key == t.Key && p.t.Opened == t.Opened && p.t.Number == t.Number {
			return true
		}
	}
	return false
}

// inHand returns the keys of the notices of a ledger that are on their way.
func (s *sent) inHand(in *ledger.Ledger) (keys []ledger.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.parcels {
		if p.from == in {
			keys = append(keys, p.t.Key)
		}
	}
	return keys
}

// begin notes that a sink may have sent the notice.
func (s *sent) begin(p *parcel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.begun = true
}

// done notes that a sink is through with a notice, or was interrupted.
func (s *sent) done(p *parcel, interrupted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.open--
	p.unsent = p.unsent || interrupted
}

// expire takes what a sink has for longer for sent: a sink that hangs must not keep the others from the summary.
func (s *sent) expire(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.parcels {
		if time.Since(p.made) > after {
			p.open = min(p.open, 0)
		}
	}
}

// settle ends the leases of the notices that all sinks are through with. What was interrupted is left to another
// instance: at once if no sink was called with it, or else when the lease ends.
func (s *sent) settle(ctx context.Context) error {
	s.mu.Lock()
	var through []*parcel
	for p := range s.parcels {
		if p.open <= 0 {
			through = append(through, p)
		}
	}
	s.mu.Unlock()
	for _, p := range through {
		var err error
		switch {
		case !p.unsent:
			err = p.from.Done(ctx, p.t)
		case !p.begun:
			err = p.from.Release(ctx, p.t)
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		delete(s.parcels, p)
		s.mu.Unlock()
	}
	return nil
}

// Notices.
var (
	// each: Repair the function.
	eventNoticeLinkPanicked = logging.ErrorEvent("notice_link_panicked",
		"Config.Link panicked; the notice goes on without it")
	// once: Repair the sink; the next notice counts the lost ones.
	eventNoticeQueueFull = logging.ErrorEvent("notice_queue_full",
		"The queue of a sink is full: notices are dropped until it accepts them")
	// stop: Let the sink end with its context.
	eventNoticeSinkHangs = logging.ErrorEvent("notice_sink_hangs",
		"A sink of notices does not end with its context, and is left behind")
	// each: Repair the sink.
	eventNoticeGivenUp = logging.ErrorEvent("notice_given_up", "A notice was given up: the sink did not accept it")
	// stop: nothing
	eventNoticeInterrupted = logging.InfoEvent("notice_interrupted",
		"The router closed before a notice was sent; another instance sends it if they share a database")
	// outage: Repair the sink.
	eventNoticeSinkUnavailable = logging.ErrorEvent("notice_sink_unavailable",
		"A sink does not accept a notice; it is tried again")
	// outage: nothing
	eventNoticeSinkBack = logging.InfoEvent("notice_sink_back", "A sink accepts notices again")
	// outage: Repair the database.
	eventNoticeStoreUnavailable = logging.ErrorEvent("notice_store_unavailable",
		"The database of the notices does not answer; what happens is counted, and sent when it answers")
	// outage: nothing
	eventNoticeStoreBack = logging.InfoEvent("notice_store_back", "The database of the notices answers again")
	// each: Look why instances ended.
	eventNoticesLost = logging.ErrorEvent("notices_lost",
		"Notices were given up: two instances ended before they had sent them")
)
