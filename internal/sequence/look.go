package sequence

import (
	"container/heap"
	"context"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// lookEvery is how soon an owner sees what a person decided. It is one query of an index, and none if nothing is
// parked.
var lookEvery = 5 * time.Second

// lookForDecisions lets lanes be drained for which a person decided something.
func (o *Owner) lookForDecisions(ctx context.Context) {
	o.mu.Lock()
	due := len(o.lanes) > 0 && time.Since(o.looked) >= lookEvery
	if due {
		o.looked = time.Now()
	}
	o.mu.Unlock()
	if !due {
		return
	}
	lanes, err := o.store.Decided(ctx, o.of)
	if err != nil && ctx.Err() == nil {
		logging.SequencesAway.Write(o.Logger, err, o.fields())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, lane := range lanes {
		// What is not known was parked by a process that does not own the source any more: the next owner finds it.
		if l := o.lanes[string(lane)]; l != nil && l.index >= 0 {
			l.due = time.Now()
			heap.Fix(&o.due, l.index)
		}
	}
}
