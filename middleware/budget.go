package middleware

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
)

// Budget bounds how many further attempts Retry makes, as a share of the messages that it handles. So retries do not
// multiply the load on a service that already fails. It is the algorithm of Finagle's RetryBudget. The zero value is
// useful, and gives each handler a budget of its own. NewBudget returns one that several handlers share.
//
// Live messages, messages out of retry stages and redriven messages have separate budgets. A live message counts as
// handled for each of them: stages have room for 20 % of the live messages, and 10 a second.
type Budget struct {
	// Share is how many further attempts are made per handled message, over the last TTL. A negative value means none.
	// Default: 0.2.
	Share float64
	// PerSecond is how many further attempts are made beside these, without any traffic too. Those of a whole TTL can be
	// made at once. A negative value means none. Default: 10.
	PerSecond float64
	// TTL is how long a handled message counts. It must be from 1 second to 1 minute. Default: 10 seconds.
	TTL time.Duration

	shared *purse
}

// NewBudget returns a Budget that all handlers share that have it, in one Channel or several. Give it to
// RetryConfig.Budget. The error names the field of config that is wrong.
func NewBudget(config Budget) (*Budget, error) {
	if err := config.validate("Budget"); err != nil {
		return nil, err
	}
	config.shared = newPurse(config)
	return &config, nil
}

func (b Budget) withDefaults() Budget {
	if b.Share == 0 {
		b.Share = 0.2
	}
	if b.PerSecond == 0 {
		b.PerSecond = 10
	}
	if b.TTL == 0 {
		b.TTL = 10 * time.Second
	}
	b.Share, b.PerSecond = max(b.Share, 0), max(b.PerSecond, 0)
	return b
}

const (
	minTTL, maxTTL = time.Second, time.Minute
	// maxPerSecond catches what was meant as no bound.
	maxPerSecond = 1e6
)

func (b Budget) validate(field string) error {
	switch b = b.withDefaults(); {
	case math.IsNaN(b.Share) || b.Share > 1000:
		return fmt.Errorf("middleware: %s.Share is %v: it is a share of the handled messages, such as 0.2; for retries "+
			"without a budget set none", field, b.Share)
	case math.IsNaN(b.PerSecond) || b.PerSecond > maxPerSecond:
		return fmt.Errorf("middleware: %s.PerSecond is %v: it must be at most %v; for retries without a budget set none",
			field, b.PerSecond, float64(maxPerSecond))
	case b.TTL < minTTL || b.TTL > maxTTL:
		return fmt.Errorf("middleware: %s.TTL is %s: it must be from %s to %s", field, b.TTL, minTTL, maxTTL)
	case b.Share == 0 && b.PerSecond == 0:
		return fmt.Errorf("middleware: %s.Share and PerSecond are both negative: no retry would be made; to make none, set "+
			"RetryConfig.Attempts to 1", field)
	}
	return nil
}

// The kinds of traffic that have separate budgets.
const (
	// TrafficLive is a message of the handler's own topic.
	TrafficLive = "live"
	// TrafficStage is a message that waited in a retry stage.
	TrafficStage = "stage"
	// TrafficRedriven is a dead letter that was redriven.
	TrafficRedriven = "redriven"
)

// purse has a bucket for each kind of traffic.
type purse struct{ live, stage, redriven bucket }

func newPurse(of Budget) *purse {
	of = of.withDefaults()
	p := &purse{}
	p.live.init(of, TrafficLive, nil)
	p.stage.init(of, TrafficStage, &p.live)
	p.redriven.init(of, TrafficRedriven, &p.live)
	return p
}

// of returns the bucket of the message of c. A message that was redriven to a live topic counts as live until it fails:
// metadata is not read on the happy path.
func (p *purse) of(c *chain.Call) *bucket {
	switch {
	case c.Reentry == nil:
		return &p.live
	case c.Reentry.Stage > 0:
		return &p.stage
	}
	return &p.redriven
}

// failed returns the bucket for further attempts of the message of c, which is of b so far.
func (p *purse) failed(c *chain.Call, b *bucket) *bucket {
	if b == &p.live && c.Arrived(chain.KeyRedriveCount) != "" {
		b = &p.redriven
		b.deposit()
	}
	return b
}

// purses are those of one Retry, by handler.
type purses struct {
	budget Budget
	mu     sync.Mutex
	of     map[string]*purse
}

// get returns the purse for the handler of c.
func (p *purses) get(c *chain.Call) *purse {
	if p.budget.shared != nil {
		return p.budget.shared
	}
	name := message.HandlerNameFromCtx(c.Ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of[name]
	if one == nil {
		one = newPurse(p.budget)
		p.of[name] = one
	}
	return one
}

// spent returns the buckets without a further attempt, in the order of their names.
func (p *purses) spent(now time.Time) (spent []BudgetSpent) {
	of := map[string]*purse{"": p.budget.shared}
	if p.budget.shared == nil {
		p.mu.Lock()
		of = maps.Clone(p.of)
		p.mu.Unlock()
	}
	for _, handler := range slices.Sorted(maps.Keys(of)) {
		for _, b := range [...]*bucket{&of[handler].live, &of[handler].redriven, &of[handler].stage} {
			if b.spent(now) {
				spent = append(spent, BudgetSpent{Handler: handler, Traffic: b.traffic})
			}
		}
	}
	return spent
}

// bucketSlots is the number of slots that a TTL is counted in. What happened in a slot is forgotten at once.
const bucketSlots = 10

// noteEvery is how many messages are handled before the clock is read to count them. It is a power of two.
const noteEvery = 64

// bucket is the budget for one kind of traffic.
type bucket struct {
	handled atomic.Uint64 // messages, ever

	traffic string
	live    *bucket // whose messages count here too, or nil
	share   float64
	floor   int64 // further attempts in a TTL
	slot    time.Duration

	mu      sync.Mutex
	began   time.Time
	counted uint64 // of handled
	at      time.Time
	current int64 // number of the present slot, since began
	slots   [bucketSlots]tally
	sum     tally
}

// tally counts messages and further attempts in a slot, or in all.
type tally struct{ handled, further int64 }

// withdrawal is what a further attempt was charged to.
type withdrawal struct {
	from *bucket // nil if nothing was charged
	slot int64
}

func (b *bucket) init(of Budget, traffic string, live *bucket) {
	b.traffic, b.live, b.share = traffic, live, of.Share
	b.floor = int64(math.Round(of.PerSecond * of.TTL.Seconds()))
	if of.PerSecond > 0 {
		b.floor = max(b.floor, 1)
	}
	b.slot = of.TTL / bucketSlots
	b.began = time.Now()
	b.at = b.began
}

// deposit counts a handled message. It reads no clock but for one message of noteEvery.
func (b *bucket) deposit() {
	if b.handled.Add(1)%noteEvery == 0 {
		b.mu.Lock()
		b.advance(time.Now())
		b.mu.Unlock()
	}
}

// spent reports whether there is no further attempt now.
func (b *bucket) spent(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	return !b.hasOne(now)
}

// hasOne reports whether there is a further attempt. The caller holds mu, and has called advance.
func (b *bucket) hasOne(now time.Time) bool {
	handled := b.sum.handled
	if b.live != nil {
		handled += b.live.handledLately(now)
	}
	return b.share*float64(handled)+float64(b.floor-b.sum.further) >= 1
}

// withdraw charges a further attempt. It reports false if the budget is spent.
func (b *bucket) withdraw(now time.Time) (w withdrawal, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	if !b.hasOne(now) {
		return withdrawal{}, false
	}
	b.slots[b.current%bucketSlots].further++
	b.sum.further++
	return withdrawal{b, b.current}, true
}

// handledLately returns how many messages were handled in the last TTL.
func (b *bucket) handledLately(now time.Time) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(now)
	return b.sum.handled
}

// refund takes a withdrawal back, if it still counts.
func (w withdrawal) refund() {
	b := w.from
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current-w.slot < bucketSlots {
		b.slots[w.slot%bucketSlots].further--
		b.sum.further--
	}
}

// next returns how long it is until a slot is forgotten, and with it withdrawals of then.
func (b *bucket) next(now time.Time) time.Duration {
	return b.slot - now.Sub(b.began)%b.slot
}

// advance forgets slots that are over, and counts what was handled since it was called last. The caller holds mu.
func (b *bucket) advance(now time.Time) {
	if now.Before(b.at) { // another message read the clock later
		now = b.at
	}
	to := int64(now.Sub(b.began) / b.slot)
	for range min(to-b.current, bucketSlots) {
		b.current++
		b.forget(&b.slots[b.current%bucketSlots])
	}
	b.current = to
	handled := b.handled.Load()
	fresh := int64(handled - b.counted)
	// the latest is of now, and most are forgotten
	if all, since := b.slot*bucketSlots, now.Sub(b.at); since > all && fresh > 1 {
		fresh = 1 + int64(float64(fresh-1)*float64(all)/float64(since))
	}
	b.counted, b.at = handled, now
	b.slots[to%bucketSlots].handled += fresh
	b.sum.handled += fresh
}

func (b *bucket) forget(slot *tally) {
	b.sum.handled -= slot.handled
	b.sum.further -= slot.further
	*slot = tally{}
}
