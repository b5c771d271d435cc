package redrive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/redrive/internal/engine"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// DrainConfig configures Drain. Only Rules.Allow is required.
type DrainConfig struct {
	Rules
	// Max is the largest number of letters that are taken. Default: all.
	Max int

	lease time.Duration // drainLease; only tests set it
}

// drainLease is how long letters are reserved, by the database's clock. Drain renews the leases of the letters in hand
// three times in it. After a crash these letters stay leased for that long.
const drainLease = time.Minute

func (c *DrainConfig) validate() error {
	if c.lease == 0 {
		c.lease = drainLease
	}
	if c.Max < 0 {
		return fmt.Errorf("redrive: DrainConfig.Max is %d: it must not be negative", c.Max)
	}
	if n := len(c.Allow) + len(c.Filter.NotTopics); n > letters.MaxListed {
		return fmt.Errorf("redrive: DrainConfig.Allow and Filter.NotTopics list %d topics, at most %d are possible: use "+
			"several calls", n, letters.MaxListed)
	}
	if c.Filter.NewestFirst {
		return errors.New("redrive: DrainConfig.Filter.NewestFirst is for lists: a drain goes in the order of arrival, " +
			"leave it out")
	}
	if c.Filter.Limit != 0 {
		return errors.New("redrive: DrainConfig.Filter.Limit pages through lists: use DrainConfig.Max")
	}
	return nil
}

// Drain redrives the letters of a Store that config chooses and that are there when it starts, through publisher, which
// must confirm what it takes. Letters that arrive later are left for the next drain. A letter is marked after it was
// published, with a Concurrency above 1 together with others and beside the next publishes: a process that dies may
// have published up to 256 letters more than Concurrency that are not marked. The next drain publishes them again. A
// letter that publisher refuses waits again. After three refused letters in a row Drain returns the error.
//
// When ctx ends, Drain at once releases the letters that it has not begun. It then waits for publisher to return,
// because Publish has no context, and returns the report and the error of ctx. So give the publisher's client a
// time-out. Marks take at most a minute.
//
// Each letter is considered once. Several drains, also in several processes, may run at the same time and share the
// letters. Drain returns when it finds no more letters. It tries letters again that another transaction has locked. If
// nothing moves for 30 s, Drain returns an error that counts them.
func Drain(ctx context.Context, store *letters.Store, publisher message.Publisher, config DrainConfig) (Report, error) {
	if ctx == nil {
		return Report{}, errors.New("redrive: the context is nil: use context.Background() if there is no other")
	}
	if store == nil {
		return Report{}, errors.New("redrive: the Store is nil: check the error of letters.NewStore; a channel has a store with Config.DB, " +
			"and without Config.Publisher")
	}
	working, err := newRules("DrainConfig", publisher, config.Rules)
	if err != nil {
		return Report{}, err
	}
	if err := config.validate(); err != nil {
		return Report{}, err
	}
	d := &drain{rules: working, store: store, config: config, report: Report{ID: working.id},
		considered: make(map[int64]struct{})}
	last, err := hidden.Of(store).LastSeq(ctx)
	if err != nil || last == 0 {
		return d.report, err
	}
	if d.Filter.MaxSeq == 0 || d.Filter.MaxSeq > last {
		d.Filter.MaxSeq = last
	}
	if d.To == "" {
		err = d.countRefused(ctx) // an error here keeps no letter from coming back
		d.Filter.Topics = d.allowed(d.Filter.Topics)
		if len(d.Filter.Topics) == 0 {
			return d.report, err
		}
	}
	err = errors.Join(d.run(ctx), err)
	return d.report, err
}

// allowed returns the allowed topics among those of a filter.
func (d *drain) allowed(topics []string) []string {
	if len(topics) == 0 {
		return d.Allow
	}
	return slices.DeleteFunc(slices.Clone(topics), func(topic string) bool { return !slices.Contains(d.Allow, topic) })
}

// Report says what a drain did until it ended, also if it ended with an error.
type Report struct {
	// ID is the x-redrive-id of every letter that was redriven.
	ID string
	// Taken counts the letters that were worked on, whatever became of them. A Refused letter of a Store is not among
	// them.
	Taken int
	// Redriven counts the letters that were published to their topic.
	Redriven int
	// Quarantined counts the letters that failed again after MaxRedrives redrives.
	Quarantined int
	// Refused counts the letters whose topic is not in Allow. Letters of a Store are counted when Drain starts; they
	// stay as they are and wait for a drain that allows their topic. Letters of a topic are parked.
	Refused int
	// RefusedTopics are the Refused letters of a Store by their topics: the 20 topics with the most letters. The topic
	// of letters that have none is empty.
	RefusedTopics map[string]int
	// Sealed counts the sealed letters that did not open, which Refused does not count. Letters of a Store stay as they
	// are; letters of a topic are parked. SealError is the error of the first, which names its key.
	Sealed    int
	SealError error
	// Parked counts the messages of a topic that were not chosen, or that were no letters. Drain parks nothing.
	Parked int
	// Failed counts the letters that the publisher refused. Letters of a Store wait again; letters of a topic are
	// parked.
	Failed int
	// LeasesLost counts the letters of a Store that another caller took over, or that arrived again, while the drain
	// worked on them. If they were published before, they will be published once more.
	LeasesLost int
}

// refusedTopic counts refused letters of a topic, if it has a place.
func (r *Report) refusedTopic(topic string, letters int) {
	if _, has := r.RefusedTopics[topic]; !has && len(r.RefusedTopics) == maxRefusedTopics {
		return
	}
	if r.RefusedTopics == nil {
		r.RefusedTopics = make(map[string]int)
	}
	r.RefusedTopics[topic] += letters
}

const (
	// maxBatch is how many letters are claimed at a time; the Store bounds their bytes. A drain has two batches in
	// hand: the one that it publishes, and the next one.
	maxBatch = 500
	// maxWrite bounds what is still written after the drain's context ended.
	maxWrite = 30 * time.Second
	// firstPause is the wait before letters are looked for again that others have locked. It doubles up to a second.
	firstPause = 5 * time.Millisecond
)

// drain is one run over a store.
type drain struct {
	rules
	store  *letters.Store
	config DrainConfig
	engine engine.Engine[result]
	ctx    context.Context // of the run, for hooks
	cancel context.CancelFunc

	mu       sync.Mutex // guards what follows
	report   Report
	refusals int   // in a row
	err      error // what ended the drain
	// considered are the letters that this drain is through with and that its filter chooses still, or again: those
	// whose lease was lost, and all of them where Filter.Statuses has the new status.
	considered map[int64]struct{}
}

func (d *drain) run(parent context.Context) error {
	d.ctx, d.cancel = context.WithCancel(parent)
	defer d.cancel()
	d.engine = engine.Engine[result]{Concurrency: d.Concurrency, Unmarked: engine.MaxUnmarked, Fetch: d.fetch,
		Publish: d.bring, Settle: d.settle, Interrupted: func(engine.Piece) result {
			d.stop(errInterrupted) // letters that were not considered must not pass for done
			return result{failed: true}
		}}
	d.engine.Run(d.ctx)
	if err := parent.Err(); err != nil && !errors.Is(d.err, err) {
		d.err = errors.Join(err, d.err)
	}
	if d.err != nil {
		return fmt.Errorf("redrive: drain %s ended early: %w", d.id, d.err)
	}
	return nil
}

// fetch goes over the letters until it finds none. Once is not enough: letters that another transaction was writing were
// passed over.
func (d *drain) fetch(ctx context.Context) {
	pause, idleSince := firstPause, time.Now()
	for ctx.Err() == nil {
		found, taken, err := d.pass(ctx)
		switch {
		case err != nil:
			d.stop(err)
			return
		case found == 0:
			return
		case taken > 0:
			pause, idleSince = firstPause, time.Now()
		case time.Since(idleSince) > maxWrite:
			d.stop(fmt.Errorf("%d letters have been locked by other transactions for %s: end those, and drain again",
				found, maxWrite))
			return
		default:
			timing.Wait(ctx, pause)
			pause = min(2*pause, time.Second)
		}
	}
}

// pass goes over the letters once, in the order of Seq. It returns how many it found that were not considered before,
// and how many of these it took.
func (d *drain) pass(ctx context.Context) (found, taken int, err error) {
	filter := d.Filter
	for n := d.batch(); n > 0 && ctx.Err() == nil; n = d.batch() {
		chosen, err := hidden.Of(d.store).Free(ctx, filter, n)
		if err != nil || len(chosen) == 0 {
			return found, taken, err
		}
		filter.After = chosen[len(chosen)-1]
		chosen = slices.DeleteFunc(chosen, d.isConsidered)
		if len(chosen) == 0 {
			continue
		}
		found += len(chosen)
		c, err := hidden.Of(d.store).Claim(ctx, filter, chosen, d.config.lease)
		if err != nil {
			return found, taken, err
		}
		if len(c.Letters) == 0 {
			continue
		}
		taken += len(c.Letters)
		d.taken(len(c.Letters))
		d.engine.Offer(ctx, &engine.Batch{Lease: engine.Hold(d.store, c, d.config.lease,
			func(err error) { logging.LettersNotRenewed.Write(d.Logger, err, nil) })})
	}
	return 0, taken, nil // Max letters are taken, or the drain has ended
}

// taken counts letters that the drain has in hand.
func (d *drain) taken(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report.Taken += n
}

func (d *drain) isConsidered(seq int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.considered[seq]
	return is || d.engine.Has(seq)
}

// batch is how many letters to take next. At a slow rate it is few, or their leases would end before their turn.
func (d *drain) batch() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := maxBatch
	if d.Rate > 0 {
		n = int(min(maxBatch, max(1, d.Rate*d.config.lease.Seconds()/4)))
	}
	if d.config.Max > 0 {
		n = min(n, d.config.Max-d.report.Taken)
	}
	return n
}
