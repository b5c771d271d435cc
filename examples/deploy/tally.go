package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// tally counts messages by id.
type tally struct {
	mu              sync.Mutex
	begun, finished map[string]int
	running, cut    int
	letters         int
	last            time.Time // when a message was finished
	gap             time.Duration
}

func newTally() *tally { return &tally{begun: make(map[string]int), finished: make(map[string]int)} }

func (t *tally) begins(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun[id]++
	t.running++
}

func (t *tally) finishes(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finished[id]++
	t.running--
	if now := time.Now(); t.last.IsZero() {
		t.last = now
	} else {
		t.gap, t.last = max(t.gap, now.Sub(t.last)), now
	}
}

func (t *tally) isCut(string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut++
	t.running--
}

func (t *tally) lettered(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.letters += n
}

// allFinished reports whether each of the ids is.
func (t *tally) allFinished(ids []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		if t.finished[id] == 0 {
			return false
		}
	}
	return true
}

// line is one of the chart.
func (t *tally) line(since time.Time, what string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%4.0f s  running %-8s finished %3d  cut off %2d  repeated %2d  %s", time.Since(since).Seconds(),
		strings.Repeat("█", t.running), len(t.finished), t.cut, t.repeated(), what)
}

// repeated is how many handlers began with a message that one had before. The caller holds mu.
func (t *tally) repeated() (n int) {
	for _, times := range t.begun {
		n += times - 1
	}
	return n
}

// Result is what came of the run.
type Result struct {
	On        string  `json:"on"`
	Drain     bool    `json:"drain"`
	Published int     `json:"published"`
	Lost      int     `json:"lost"`
	CutOff    int     `json:"cut_off"`
	Repeated  int     `json:"repeated"`
	Letters   int     `json:"letters"`
	Pause     float64 `json:"longest_pause_s"`
	Close     float64 `json:"longest_close_s"`
}

func (t *tally) result(plan *Plan, ids []string, longest time.Duration) *Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &Result{On: plan.On, Drain: !plan.Without, Published: len(ids), CutOff: t.cut, Repeated: t.repeated(),
		Letters: t.letters, Pause: t.gap.Round(100 * time.Millisecond).Seconds(),
		Close: longest.Round(100 * time.Millisecond).Seconds()}
	for _, id := range ids {
		if t.finished[id] == 0 {
			r.Lost++
		}
	}
	return r
}

// JSON returns the result as one line.
func (r *Result) JSON() string {
	line, _ := json.Marshal(r)
	return string(line)
}

func (r *Result) good(plan *Plan) bool {
	return r.Lost == 0 && r.Letters == 0 && (plan.Without || r.CutOff == 0 && r.Repeated == 0)
}
