package campaigns

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
)

const (
	// maxCampaigns is how many campaigns one worker works on at the same time.
	maxCampaigns = 8
	// maxStopping is how many more may be giving back what they have in hand: their publishers have yet to return.
	maxStopping = 8
	// turnLasts is how many polls of the worker a campaign is worked on before another one that waits takes its place.
	turnLasts = 5
)

// slots are the places for campaigns: they take turns if there are more than a worker works on at the same time.
type slots struct {
	lasts time.Duration

	mu      sync.Mutex
	running map[string]*slot
	ended   map[string]time.Time // of campaigns that had a turn: when the last one ended
}

// slot is the work on one campaign.
type slot struct {
	since    time.Time
	stop     context.CancelFunc
	stopping bool
	flight   *flight
}

func newSlots(poll time.Duration) *slots {
	return &slots{lasts: turnLasts * poll, running: make(map[string]*slot), ended: make(map[string]time.Time)}
}

// keep ends the work on campaigns that do not run any more, also while a publisher does not return.
func (t *slots) keep(todo []Campaign) {
	t.mu.Lock()
	defer t.mu.Unlock()
	runs := make(map[string]bool, len(todo))
	for _, c := range todo {
		runs[c.ID] = c.State == Running
	}
	for id, of := range t.running {
		if !runs[id] {
			of.end()
		}
	}
	for id := range t.ended {
		if !runs[id] {
			delete(t.ended, id)
		}
	}
}

func (t *slot) end() {
	t.stopping = true
	t.stop()
}

// waiting returns those of the campaigns that are not worked on, the one whose turn is longest ago first, and how many
// places are free.
func (t *slots) waiting(ready []Campaign) (waiting []Campaign, free int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range ready {
		if t.running[c.ID] == nil {
			waiting = append(waiting, c)
		}
	}
	slices.SortStableFunc(waiting, func(a, b Campaign) int { return t.ended[a.ID].Compare(t.ended[b.ID]) })
	return waiting, t.free()
}

func (t *slots) free() int {
	stopping := 0
	for _, of := range t.running {
		if of.stopping {
			stopping++
		}
	}
	return maxCampaigns - (len(t.running) - stopping) - max(0, stopping-maxStopping)
}

// makeRoom ends the turns of campaigns without a letter due, and of those whose turn is over, until n places are free
// or no such campaign is left. It returns how many are free.
func (t *slots) makeRoom(n int) (free int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var over []*slot
	for _, of := range t.running {
		if !of.stopping && (of.flight.stands.Load() || time.Since(of.since) >= t.lasts) {
			over = append(over, of)
		}
	}
	slices.SortFunc(over, func(a, b *slot) int {
		standsFirst := cmp.Compare(boolInt(b.flight.stands.Load()), boolInt(a.flight.stands.Load()))
		return cmp.Or(standsFirst, a.since.Compare(b.since))
	})
	for _, of := range over {
		if t.free() >= n {
			break
		}
		of.end()
	}
	return t.free()
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// dispatch works on the campaigns that run. If there are more than places, those with a letter due take turns.
func (r *rounds) dispatch(ctx context.Context, ready []Campaign) error {
	waiting, free := r.slots.waiting(ready)
	if len(waiting) > max(0, free) {
		due, err := r.due(ctx, waiting)
		if err != nil {
			return err
		}
		waiting = slices.DeleteFunc(waiting, func(c Campaign) bool { return !due[c.ID] })
		if len(waiting) > free {
			free = r.slots.makeRoom(len(waiting))
		}
	}
	for i, c := range waiting {
		if i < free {
			r.begin(ctx, c)
		} else if !r.complained[c.ID] && r.all.recordOnce(ctx, c.ID, inside.CampaignWaits, whyWaits) == nil {
			r.complained[c.ID] = true
			logging.CampaignWaits.Write(r.all.config.Logger, nil, logging.Fields{logging.Campaign: c.ID})
		}
	}
	return nil
}

var whyWaits = fmt.Sprintf("more campaigns have letters due than a worker works on at the same time, which are %d: "+
	"they take turns", maxCampaigns)

// begin works on a campaign beside the rounds.
func (r *rounds) begin(ctx context.Context, c Campaign) {
	ctx, stop := context.WithCancel(ctx)
	t := r.slots
	t.mu.Lock()
	_, again := t.ended[c.ID]
	f := r.worker.newFlight(c, !again)
	t.running[c.ID] = &slot{since: time.Now(), stop: stop, flight: f}
	t.mu.Unlock()
	r.workers.Go(func() {
		defer func() {
			stop()
			t.mu.Lock()
			defer t.mu.Unlock()
			delete(t.running, c.ID)
			t.ended[c.ID] = time.Now()
		}()
		f.run(ctx)
	})
}

// due returns those of the campaigns that have a letter which can be taken now, or none any more.
func (r *rounds) due(ctx context.Context, of []Campaign) (map[string]bool, error) {
	due := make(map[string]bool)
	args := []any{horizon.Microseconds()}
	for _, c := range of {
		args = append(args, r.all.db.Text(c.ID))
	}
	const pending = `(SELECT 1 FROM spillway_campaign_letters WHERE campaign = spillway_campaigns.id AND state = 'pending'`
	err := r.all.query(ctx, func() { clear(due) }, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		due[id] = true
		return err
	}, `SELECT id FROM spillway_campaigns WHERE (rate = 0 OR next_due <= now_us() + ?) AND id IN (`+marks(len(of))+`)
AND (EXISTS `+pending+` AND leased_until <= now_us()) OR NOT EXISTS `+pending+`))`, args...)
	return due, err
}
