package campaigns

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
)

const (
	// maxCampaigns is how many campaigns one worker takes letters of at the same time.
	maxCampaigns = 8
	// turnLasts is how many polls of the worker a campaign is worked on before another one that waits takes its place.
	turnLasts = 5
)

// slots are the places for campaigns: they take turns if there are more than a worker works on at the same time. A
// campaign whose publisher does not return needs no place.
type slots struct {
	lasts  time.Duration
	places chan struct{}
	others atomic.Bool // wait for a place

	mu      sync.Mutex
	running map[string]*flight
	ended   map[string]time.Time // of campaigns that had a turn: when the last one ended
}

func newSlots(poll time.Duration) *slots {
	return &slots{lasts: turnLasts * poll, places: make(chan struct{}, maxCampaigns), running: make(map[string]*flight),
		ended: make(map[string]time.Time)}
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
			of.cancel()
		}
	}
	for id := range t.ended {
		if !runs[id] {
			delete(t.ended, id)
		}
	}
}

// dispatch works on the campaigns that run, those first whose turn is longest ago. While some wait for a place, it ends
// the turns that are over.
func (r *rounds) dispatch(ctx context.Context, ready []Campaign) {
	t := r.slots
	t.mu.Lock()
	waiting := slices.DeleteFunc(ready, func(c Campaign) bool { return t.running[c.ID] != nil })
	slices.SortStableFunc(waiting, func(a, b Campaign) int { return t.ended[a.ID].Compare(t.ended[b.ID]) })
	for len(waiting) > 0 && len(t.places) < maxCampaigns {
		r.begin(ctx, waiting[0])
		waiting = waiting[1:]
	}
	t.others.Store(len(waiting) > 0)
	for _, of := range t.running {
		if len(waiting) > 0 && time.Since(of.since) >= t.lasts {
			of.cancel()
		}
	}
	t.mu.Unlock()
	for _, c := range waiting {
		if !r.complained[c.ID] && r.all.recordOnce(ctx, c.ID, inside.CampaignWaits, whyWaits) == nil {
			r.complained[c.ID] = true
			eventCampaignWaits.Write(r.all.config.Logger, nil, logging.Fields{logging.Campaign: c.ID})
		}
	}
}

var whyWaits = fmt.Sprintf("more campaigns have letters due than a worker works on at the same time, which are %d: "+
	"they take turns", maxCampaigns)

// begin works on a campaign beside the rounds. The mutex of the slots is locked.
func (r *rounds) begin(ctx context.Context, c Campaign) {
	t := r.slots
	_, again := t.ended[c.ID]
	f := r.worker.newFlight(c, !again)
	f.slots, f.since = t, time.Now()
	ctx, f.cancel = context.WithCancel(ctx)
	t.places <- struct{}{}
	t.running[c.ID] = f
	r.workers.Go(func() {
		defer func() {
			f.cancel()
			t.mu.Lock()
			defer t.mu.Unlock()
			delete(t.running, c.ID)
			t.ended[c.ID] = time.Now()
		}()
		f.run(ctx)
	})
}
