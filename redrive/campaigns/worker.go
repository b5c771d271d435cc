package campaigns

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/redrive/internal/engine"
)

// WorkerConfig configures a Worker.
type WorkerConfig struct {
	// Poll is how often a worker looks for campaigns to work on, and the rest of a letter that was refused, times its
	// tries. Default: 1 s. At least 1 ms.
	Poll time.Duration
	// Lease is how long the letters that a worker has in hand are reserved, by the database's clock. The worker renews
	// it. After a crash other workers wait for that long. Default: 30 s. At least 100 ms.
	Lease time.Duration

	// What follows has the constants below; only tests set it.
	batch, unmarked, attempts int
}

func (c *WorkerConfig) setDefaults() {
	if c.Poll == 0 {
		c.Poll = time.Second
	}
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	if c.batch == 0 {
		c.batch = maxBatch
	}
	if c.unmarked == 0 {
		c.unmarked = engine.MaxUnmarked
	}
	if c.attempts == 0 {
		c.attempts = publishAttempts
	}
}

const (
	// maxBatch is the largest number of letters that a worker claims in one transaction, as a drain does: fewer at a rate,
	// those of a quarter of a second. It has two batches in hand: the one that it publishes, and the next one.
	maxBatch = 500
	// publishAttempts is the number of times that a letter is offered to the publisher, each time that a worker takes
	// it.
	publishAttempts = 3
)

func (c *WorkerConfig) validate() error {
	switch {
	case c.Poll < time.Millisecond:
		return fmt.Errorf("campaigns: WorkerConfig.Poll is %s: each is a statement; it must be 1ms or more", c.Poll)
	case c.Lease < 100*time.Millisecond:
		return fmt.Errorf("campaigns: WorkerConfig.Lease is %s: it must outlast a statement, and be 100ms or more", c.Lease)
	}
	return nil
}

// Worker redrives the letters of campaigns. Any number of workers, in any number of processes, share the campaigns of a
// service. It is safe for concurrent use.
type Worker struct {
	all       *Campaigns
	publisher message.Publisher
	config    WorkerConfig
	life      *lifecycle.Lifecycle
}

// NewWorker returns a Worker that publishes through publisher, which must confirm what it takes and must not be the
// publisher of a handler: a router closes those. Nothing is published before Run, or before the router of Plugin runs.
// The Worker does not close the publisher.
func NewWorker(c *Campaigns, publisher message.Publisher, config WorkerConfig) (*Worker, error) {
	switch {
	case c == nil:
		return nil, errors.New("campaigns: the Campaigns are nil: check the error of New")
	case len(c.config.Allow) == 0:
		return nil, errors.New("campaigns: Config.Allow is empty: name the topics that letters may go to; a letter's own " +
			"metadata cannot be trusted")
	}
	if err := engine.CheckPublisher("campaigns", publisher, c.config.Allow...); err != nil {
		return nil, err
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	w := &Worker{all: c, publisher: publisher, config: config}
	w.life = lifecycle.Run(func(ctx context.Context) { _ = w.Run(ctx) })
	return w, nil
}

// Plugin runs the worker for as long as handlers of the router run. It refuses a publisher that is also a handler's.
func (w *Worker) Plugin(router *message.Router) error {
	switch {
	case w == nil:
		return errNoWorker
	case router == nil:
		return errors.New("campaigns: the router of Worker.Plugin is nil: give Worker.Plugin to Router.AddPlugin")
	}
	router.AddPublisherDecorators(func(pub message.Publisher) (message.Publisher, error) {
		if decorated.ClosedTogether(pub, w.publisher) {
			return nil, fmt.Errorf("campaigns: the publisher (%T) is also that of a handler, which the router closes when the "+
				"handler stops: give the worker a publisher of its own", w.publisher)
		}
		return pub, nil
	})
	return w.life.Plugin(router)
}

var errNoWorker = errors.New("campaigns: the *Worker is nil: check the error of NewWorker")

// Run works on campaigns until ctx ends, and returns nil then: when the calls of the publisher that were under way have
// returned, and the letters that were not begun have been released. Publish has no context, so give the publisher's
// client a time-out. An error of the database or the publisher does not end Run.
func (w *Worker) Run(ctx context.Context) error {
	switch {
	case w == nil:
		return errNoWorker
	case ctx == nil:
		return errNoContext
	}
	r := &rounds{all: w.all, worker: w, slots: newSlots(w.config.Poll), complained: make(map[string]bool),
		listenAt: make(map[string]time.Time), policyAt: make(map[string]time.Time)}
	defer r.workers.Wait()
	for ctx.Err() == nil {
		err := r.round(ctx)
		r.report(ctx, err)
		timing.Wait(ctx, w.config.Poll)
	}
	return nil
}

// rounds is one Run.
type rounds struct {
	all     *Campaigns
	worker  *Worker
	workers sync.WaitGroup

	slots       *slots
	complained  map[string]bool // of campaigns that this worker cannot work on, or that waited for their turn
	listenAt    map[string]time.Time
	policyAt    map[string]time.Time // of policies, and of their causes: the next look
	notesAt     time.Time            // the next look after the notes of causes
	unavailable bool                 // the database
}

// round looks what there is to do. All that needs no publisher is done here.
func (r *rounds) round(ctx context.Context) error {
	err := r.all.sweep(ctx)
	todo, listed := r.todo(ctx)
	err = errors.Join(err, listed)
	if listed == nil {
		r.slots.keep(todo)
	}
	var ready []Campaign
	for _, c := range todo {
		if ctx.Err() != nil {
			return nil
		}
		runs, looked := r.look(ctx, c)
		if err = errors.Join(err, looked); runs && looked == nil {
			ready = append(ready, c)
		}
	}
	r.dispatch(ctx, ready)
	if now := time.Now(); !now.Before(r.notesAt) {
		r.notesAt = now.Add(notesEvery)
		_, tended := hidden.Of(r.all.store).TendNotes(ctx)
		err = errors.Join(err, tended)
	}
	return errors.Join(err, r.policies(ctx))
}

// notesEvery is how often a worker looks whether a snoozed cause woke.
const notesEvery = time.Minute

// look does the next thing of a campaign, and reports whether it is to be worked on.
func (r *rounds) look(ctx context.Context, c Campaign) (runs bool, err error) {
	if !c.State.Ended() && !r.able(ctx, c) {
		return false, nil
	}
	switch c.State {
	case Selecting:
		return false, r.goOn(ctx, c)
	case Scheduled:
		return false, r.wake(ctx, c)
	}
	if err := r.listen(ctx, c); err != nil {
		return false, err
	}
	switch {
	case c.State == Paused && !c.ResumeAt.IsZero():
		return false, r.wake(ctx, c)
	case c.State != Running:
		return false, nil
	}
	held, err := r.holdForApproval(ctx, c)
	if err == nil && !held && c.Policy != "" {
		held, err = r.holdPolicy(ctx, c)
	}
	return !held && err == nil, err
}

// able reports whether this worker can work on a campaign. Others may have what it lacks: another version of the
// service, for example.
func (r *rounds) able(ctx context.Context, c Campaign) bool {
	lacks := ""
	switch e := c.Request.Edit; {
	case e != nil && e.Func != "" && r.all.config.Edits[e.Func] == nil:
		lacks = fmt.Sprintf("the worker's Config.Edits has no function %q", e.Func)
	case c.Request.FirstStage && r.all.config.ReentryTopic == nil:
		lacks = "the worker's Config.ReentryTopic is not set"
	case c.Request.To != "" && !slices.Contains(r.all.config.Allow, c.Request.To):
		lacks = fmt.Sprintf("the worker's Config.Allow does not have the topic %q", logged(c.Request.To))
	}
	// else in the next round
	if lacks != "" && !r.complained[c.ID] && r.all.recordOnce(ctx, c.ID, inside.CampaignLeft, lacks) == nil {
		r.complained[c.ID] = true
		eventCampaignLeft.Write(r.all.config.Logger, errors.New("campaigns: "+lacks),
			logging.Fields{logging.Campaign: c.ID})
	}
	return lacks == ""
}

// report logs when the database begins and ends to fail.
func (r *rounds) report(ctx context.Context, err error) {
	switch log := r.all.config.Logger; {
	case ctx.Err() != nil:
	case err != nil && !r.unavailable:
		r.unavailable = true
		eventCampaignsStand.Write(log, err, nil)
	case err == nil && r.unavailable:
		r.unavailable = false
		eventCampaignsGoOn.Write(log, nil, nil)
	}
}

// todo are the campaigns that a worker looks at. Those that ended long ago, or of which all is known, are not among
// them.
func (r *rounds) todo(ctx context.Context) ([]Campaign, error) {
	return r.all.list(ctx, ` WHERE service = ? AND (state IN ('running', 'canary', 'paused')
	OR state = 'selecting' AND leased_until <= now_us()
	OR state = 'scheduled' AND not_before <= now_us()
	OR state IN ('finished', 'cancelled') AND redriven > succeeded + failed_again AND ended_at > now_us() - ?)
ORDER BY created_at, id LIMIT 1000`, r.all.service(), listenFor.Microseconds())
}

// goOn ends a selection that stands still: the process that began it is gone.
func (r *rounds) goOn(ctx context.Context, c Campaign) error {
	var after, last int64
	err := r.all.query(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&after, &last) },
		`SELECT select_after, max_seq FROM spillway_campaigns WHERE id = ?`, r.all.db.Text(c.ID))
	if err != nil {
		return err
	}
	return r.all.selectLetters(ctx, c.ID, &c.Request, after, last)
}

// wake lets a campaign run whose time has come.
func (r *rounds) wake(ctx context.Context, c Campaign) error {
	return r.all.write(ctx, func(tx *sql.Tx) (err error) {
		if c.State == Paused {
			_, err = r.all.resume(ctx, tx, c.ID, Act{By: ByItself, Reason: "the time that it was to wait is over"}, "",
				` AND resume_at > 0 AND resume_at <= now_us()`)
			return err
		}
		_, err = r.all.step(ctx, tx, c.ID,
			move{from: []State{Scheduled}, to: Running, what: inside.CampaignRan,
				act:  Act{By: ByItself, Reason: "Request.NotBefore is over"},
				set:  `started_at = ` + startedAt(Running) + `, next_due = now_us(), late = 0,`,
				only: ` AND not_before <= now_us()`})
		return err
	})
}

// holdForApproval takes back a campaign that a program without Config.ApproveOver started.
func (r *rounds) holdForApproval(ctx context.Context, c Campaign) (held bool, err error) {
	over := r.all.config.ApproveOver
	if over == 0 || c.Selected <= over || c.ApprovedBy != "" {
		return false, nil
	}
	err = r.all.write(ctx, func(tx *sql.Tx) error {
		held, err = r.all.step(ctx, tx, c.ID, move{from: []State{Running}, to: Approval, what: inside.CampaignHeld,
			act:  Act{By: ByItself, Reason: fmt.Sprintf("it has %d letters, and more than %d need approval", c.Selected, over)},
			only: ` AND approved_by = ''`})
		return err
	})
	return true, err
}

// Redrives, letters and campaigns.
var (
	// outage: Repair the database.
	eventLettersUnmarked = logging.ErrorEvent("letters_unmarked", "Letters were not marked; the worker tries again")
	// outage: nothing
	eventLettersMarked = logging.InfoEvent("letters_marked", "Letters are marked again")
	// outage: Read the error: database or target.
	eventCampaignStalled = logging.ErrorEvent("campaign_stalled", "A campaign stands still; the worker tries again")
	// outage: nothing
	eventCampaignResumed = logging.InfoEvent("campaign_resumed", "A campaign goes on")
	// once: Give a worker what the error names.
	eventCampaignLeft = logging.ErrorEvent("campaign_left", "A campaign is left to other workers")
	// once: nothing, or run more workers
	eventCampaignWaits = logging.InfoEvent("campaign_waits",
		"A campaign waits for its turn: more have letters due than a worker works on at the same time")
	// each: nothing
	eventPolicyStarted = logging.InfoEvent("policy_started", "A standing policy starts a campaign")
	// each: Repair the cause, then `redrive policies release`.
	eventPolicyBlocked = logging.ErrorEvent("policy_blocked", "A standing policy leaves a cause to a person")
	// outage: Repair the database.
	eventCampaignsStand = logging.ErrorEvent("campaigns_stalled", "Campaigns stand still; the worker tries again")
	// outage: nothing
	eventCampaignsGoOn = logging.InfoEvent("campaigns_resumed", "Campaigns go on")
)
