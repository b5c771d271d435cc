package notify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/observe/notify/internal/ledger"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// needed has a channel say so if nothing sends.
type needed = lifecycle.Needed

// Notifier sends notices about a channel. It is safe for concurrent use. It needs no closing: what it does begins and
// ends with the router that has its Plugin.
type Notifier struct {
	needed
	config   Config
	instance string // the name of the process in notices
	pace     pace
	pending  *pending
	life     *lifecycle.Lifecycle

	observes atomic.Bool

	mu        sync.Mutex
	channel   *spillway.Channel
	campaigns []*campaigns.Campaigns
	parked    *parked.Table  // nil if nothing is parked in the order of keys
	shared    *ledger.Ledger // by which instances agree; in memory without a database
	local     *ledger.Ledger // of this process, for what must be told while the database is unavailable
	running   *running
}

// New returns a Notifier. It returns an error that names the field of config that is wrong.
func New(config Config) (*Notifier, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.Sinks = slices.Clone(config.Sinks)
	host, _ := os.Hostname() // without a name there is the process's id
	n := &Notifier{config: config, instance: fmt.Sprintf("%s/%d", host, os.Getpid()), pace: paces,
		pending: newPending()}
	n.life = lifecycle.New(n.start, n.stop)
	return n, nil
}

// Watch tells the Notifier which channel it looks at: the letters that wait, the keys that wait in order, the
// breakers, the stores; and which campaigns, for notices of kind CampaignStopped. With a database Watch makes the table
// spillway_notices if that is missing, within ctx. It is called once, after spillway.New. The Notifier must be in the
// Config.Observers of the channel.
func (n *Notifier) Watch(ctx context.Context, channel *spillway.Channel, all ...*campaigns.Campaigns) error {
	switch {
	case ctx == nil:
		return errors.New("notify: Watch: the context is nil: use context.Background() if there is no other")
	case safecall.IsNil(channel):
		return errors.New("notify: Watch: the Channel is nil: check the error of spillway.New")
	case slices.Contains(all, nil):
		return errors.New("notify: Watch: the Campaigns are nil: check the error of campaigns.New, or leave them out")
	}
	if !n.observes.Load() {
		return errors.New("notify: Watch: no Channel has the Notifier: name it in Config.Observers, and then call spillway.New " +
			"and Watch")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.channel != nil {
		return errors.New("notify: Watch was called before: it takes one channel, and another channel needs a Notifier of its own")
	}
	rules := ledger.Rules{Window: n.pace.window, Settle: n.pace.settle, Lease: n.pace.lease,
		MaxNew: n.pace.most, Lasts: lasts, Many: string(ManyNotices)}
	n.local = ledger.InMemory(n.instance, rules)
	n.shared = n.local
	if n.config.DB != nil {
		shared, err := ledger.InTable(ctx, n.config.DB, n.config.Service, n.holder(), rules)
		if err != nil {
			return err
		}
		n.shared = shared
	}
	parked, err := parked.TableOf(ctx, channel)
	if err != nil {
		return fmt.Errorf("notify: Watch: %w", err)
	}
	n.channel, n.campaigns, n.parked = channel, all, parked
	return nil
}

// Plugin sends notices for as long as handlers of the router run: router.AddPlugin(notifier.Plugin). What happens
// before and after is kept, and sent when handlers run again.
func (n *Notifier) Plugin(router *message.Router) error {
	if router == nil {
		return errors.New("notify: Plugin: the router is nil: check the error of message.NewRouter")
	}
	n.mu.Lock()
	watches := n.channel != nil
	if n.config.Logger == nil {
		n.config.Logger = router.Logger()
	}
	n.mu.Unlock()
	if !watches {
		return errors.New("notify: Plugin: the Notifier has no channel: call Watch before the router runs")
	}
	lifecycle.Added(&n.needed)
	return n.life.Plugin(router)
}

func (n *Notifier) logger() watermill.LoggerAdapter {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.config.Logger == nil {
		return watermill.NopLogger{}
	}
	n.config.Logger = logging.Wrap(n.config.Logger, nil)
	return n.config.Logger
}

// running is what runs beside the handlers: a loop that looks after the ledger, and a goroutine for each sink.
type running struct {
	n       *Notifier
	outlets []*outlet
	sent    *sent

	end   context.CancelFunc
	ended chan struct{}

	lastRound, lastSweep, lastPoll time.Time
	unavailable                    time.Time // since when the database does not answer
}

// start starts the loop and the sinks.
func (n *Notifier) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{n: n, sent: newSent(), end: cancel, ended: make(chan struct{})}
	for i, sink := range n.config.Sinks {
		r.outlets = append(r.outlets, newOutlet(n, i, sink, r.sent))
	}
	n.mu.Lock()
	n.running = r
	n.mu.Unlock()
	go func() {
		defer close(r.ended)
		r.run(ctx)
	}()
	return nil
}

// stop ends the loop and the sinks, within about pace.end.
func (n *Notifier) stop() {
	n.mu.Lock()
	r := n.running
	n.running = nil
	n.mu.Unlock()
	r.end()
	<-r.ended
	ctx, cancel := context.WithTimeout(context.Background(), n.pace.end)
	defer cancel()
	r.write(ctx) // what happened since the last round
	for _, o := range r.outlets {
		o.finish(ctx)
	}
	ctx, cancel = context.WithTimeout(context.Background(), n.pace.answer)
	defer cancel()
	r.settle(ctx)
}

func (r *running) run(ctx context.Context) {
	ticks := time.NewTicker(r.n.pace.round)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-r.n.pending.wake:
			if time.Since(r.lastRound) < r.n.pace.round { // the next tick comes soon: a storm is counted meanwhile
				continue
			}
		}
		r.lastRound = time.Now()
		r.round(ctx)
	}
}

// round writes what happened, sends what is due, and looks at what must be looked at.
func (r *running) round(ctx context.Context) {
	err := safecall.Call("notify: a round", func() error { return r.turn(ctx) })
	if ctx.Err() != nil {
		return
	}
	logger := r.n.logger()
	switch {
	case err != nil && r.unavailable.IsZero():
		r.unavailable = time.Now()
		eventNoticeStoreUnavailable.Write(logger, logging.Cause(r.n.config.Privacy.Text(err.Error())), nil)
	case err == nil && !r.unavailable.IsZero():
		r.unavailable = time.Time{}
		eventNoticeStoreBack.Write(logger, nil, nil)
	}
	if err != nil && time.Since(r.unavailable) >= r.n.pace.answer {
		r.reportUnavailable(ctx, err)
	}
}

func (r *running) turn(ctx context.Context) error {
	err := r.settle(ctx)
	if err == nil {
		err = r.write(ctx)
	}
	if now := time.Now(); now.Sub(r.lastSweep) >= r.n.pace.sweep {
		r.lastSweep = now
		r.sent.expire(r.n.pace.giveUp + r.n.pace.lease)
		if r.n.local != r.n.shared {
			_ = r.sweep(ctx, r.n.local) // which is in memory
		}
		if err == nil {
			err = r.sweep(ctx, r.n.shared)
		}
	}
	if now := time.Now(); now.Sub(r.lastPoll) >= r.n.pace.poll {
		r.lastPoll = now
		if pollErr := r.poll(ctx); err == nil {
			err = pollErr
		}
	}
	return err
}

// write gives the ledger what is pending.
func (r *running) write(ctx context.Context) error {
	reports := r.awake(ctx, r.n.pending.take())
	for i, report := range reports {
		if err := r.report(ctx, r.n.shared, *report); err != nil {
			r.n.pending.requeue(reports[i:])
			return err
		}
	}
	return nil
}

func (r *running) report(ctx context.Context, in *ledger.Ledger, report ledger.Report) error {
	ctx, cancel := context.WithTimeout(ctx, r.n.pace.answer)
	defer cancel()
	t, err := in.Report(ctx, report)
	if err == nil && t != nil {
		r.send(in, *t)
	}
	return err
}

// sweep keeps the leases of the instance, and sends what is due.
func (r *running) sweep(ctx context.Context, in *ledger.Ledger) error {
	ctx, cancel := context.WithTimeout(ctx, r.n.pace.answer)
	defer cancel()
	if err := in.Renew(ctx, r.sent.inHand(in)...); err != nil {
		return err
	}
	due, lost, err := in.Sweep(ctx)
	for _, t := range due {
		if !r.sent.has(t) { // the instance may have stood still for longer than its lease
			r.send(in, t)
		}
	}
	if lost > 0 {
		eventNoticesLost.Write(r.n.logger(), errLost, logging.Fields{"notices": lost})
		for _, o := range r.outlets {
			o.missed.Add(int64(lost))
		}
	}
	return err
}

// send gives a notice to each sink. It never waits.
func (r *running) send(in *ledger.Ledger, t ledger.Telling) {
	p := r.sent.add(in, t, r.n.notice(t), len(r.outlets))
	for _, o := range r.outlets {
		o.offer(p)
	}
}

// settle ends the leases of what was sent.
func (r *running) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.n.pace.answer)
	defer cancel()
	return r.sent.settle(ctx)
}

var errLost = errors.New("they began to be sent twice, and were not sent")
