package campaigns

import (
	"fmt"
	"sync"
	"time"
)

const (
	// maxRefusals is how many letters in a row a publisher may refuse before the worker believes that the target is
	// down.
	maxRefusals = 3
	// maxTries is how often a letter that the publisher refuses is taken while others are accepted.
	maxTries = 5
)

// outcome is what became of a letter of a claim.
type outcome string

const (
	redriven    outcome = "redriven"
	quarantined outcome = "quarantined"
	refused     outcome = "refused" // the topic is not allowed, or the edit does not fit
	failed      outcome = "failed"  // the publisher does not take it
	gone        outcome = "gone"    // it does not wait any more
	back        outcome = ""        // it is pending as before
)

type result struct {
	row
	outcome outcome
	why     string
	rest    time.Duration // before it is taken again
	tries   int
}

// target is what one run of a worker knows of where the letters go.
type target struct {
	mu      sync.Mutex
	refused map[int64]bool // letters that were refused since one was accepted
	accepts bool           // it accepted a letter before
	down    error          // why the campaign is to pause: the target refuses
}

// refusedBy notes that the target refused a letter. Three different letters in a row say that the target is down, and
// so does one that was refused again and again if the target has accepted none.
func (f *flight) refusedBy(r row, err error) {
	t := f.target
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused[r.seq] = true
	never := r.tries+1 >= maxTries && !t.accepts
	if (len(t.refused) >= maxRefusals || never) && t.down == nil {
		t.down = fmt.Errorf("the target refused %d letters in a row: %s", len(t.refused), f.all.config.text(err, 500))
		f.cancel()
	}
}

func (t *target) accepted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.accepts = true
	clear(t.refused)
}

// isDown returns why the target is down, or nil.
func (t *target) isDown() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.down
}
