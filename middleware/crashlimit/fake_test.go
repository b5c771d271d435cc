package crashlimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
)

// fake is a store in memory, for what is about time alone. Its clock is the test's.
type fake struct {
	mu        sync.Mutex
	processes map[string]*fakeProcess
	left      map[deliveries.Key][]deliveries.Mark
	placed    map[deliveries.Key]time.Time // when dead letters were
	calls     int
	down      bool
	hang      chan struct{} // what statements wait for
	exclusive bool          // what Within answers
}

type fakeProcess struct {
	beats  int64
	beat   time.Duration
	lostAt time.Time
}

var errDown = errors.New("the store is down")

func newFake() *fake {
	return &fake{processes: map[string]*fakeProcess{}, left: map[deliveries.Key][]deliveries.Mark{},
		placed: map[deliveries.Key]time.Time{}}
}

func (f *fake) call(ctx context.Context, do func()) error {
	f.mu.Lock()
	hang := f.hang
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.down {
		return errDown
	}
	do()
	return nil
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) count(of func() int) (n int) {
	f.set(func() { n = of() })
	return n
}

func (f *fake) Within(context.Context) bool { return f.exclusive }
func (f *fake) Column(name string) string   { return name }

func (f *fake) Sweep(ctx context.Context, _, placed time.Duration) error {
	return f.call(ctx, func() {
		for m, at := range f.placed {
			if time.Since(at) > placed {
				f.remove(m, func(deliveries.Mark) bool { return true })
			}
		}
	})
}

func (f *fake) Register(ctx context.Context, r deliveries.Process) error {
	return f.call(ctx, func() { f.processes[r.ID] = &fakeProcess{beat: r.Interval} })
}

func (f *fake) Beat(ctx context.Context, id string) (there bool, err error) {
	err = f.call(ctx, func() {
		if p := f.processes[id]; p != nil {
			there = true
			p.beats++
			p.lostAt = time.Time{}
		}
	})
	return there, err
}

func (f *fake) Others(ctx context.Context, id string) (rows []deliveries.Process, err error) {
	err = f.call(ctx, func() {
		for other, p := range f.processes {
			if other != id {
				r := deliveries.Process{ID: other, Beats: p.beats, Interval: p.beat, Lost: !p.lostAt.IsZero()}
				if r.Lost {
					r.LostFor = time.Since(p.lostAt)
				}
				rows = append(rows, r)
			}
		}
	})
	return rows, err
}

func (f *fake) Lose(ctx context.Context, id string, beats int64) (lost bool, err error) {
	err = f.call(ctx, func() {
		if p := f.processes[id]; p != nil && p.beats == beats && p.lostAt.IsZero() {
			p.lostAt, lost = time.Now(), true
		}
	})
	return lost, err
}

func (f *fake) Forget(ctx context.Context, id string) error {
	return f.call(ctx, func() {
		if p := f.processes[id]; p != nil && !p.lostAt.IsZero() {
			delete(f.processes, id)
		}
	})
}

func (f *fake) SignOff(ctx context.Context, id string) error {
	return f.call(ctx, func() { delete(f.processes, id) })
}

func (f *fake) Enter(ctx context.Context, m deliveries.Key, w deliveries.Mark) (entered bool, err error) {
	err = f.call(ctx, func() {
		if entered = !slices.ContainsFunc(f.left[m], func(o deliveries.Mark) bool { return o.Delivery == w.Delivery }); entered {
			f.left[m] = append(f.left[m], w)
			if w.Delivery == 0 {
				f.placed[m] = time.Now()
			}
		}
	})
	return entered, err
}

func (f *fake) Marks(ctx context.Context, m deliveries.Key) (found []deliveries.Found, err error) {
	err = f.call(ctx, func() {
		for _, w := range slices.SortedFunc(slices.Values(f.left[m]),
			func(a, b deliveries.Mark) int { return a.Delivery - b.Delivery }) {
			one := deliveries.Found{Mark: w, Ended: true}
			if p := f.processes[w.Process]; p != nil {
				one.Interval, one.Beats, one.Ended = p.beat, p.beats, !p.lostAt.IsZero()
			}
			found = append(found, one)
		}
	})
	return found, err
}

func (f *fake) remove(m deliveries.Key, gone func(deliveries.Mark) bool) {
	if f.left[m] = slices.DeleteFunc(f.left[m], gone); len(f.left[m]) == 0 {
		delete(f.left, m)
		delete(f.placed, m)
	}
}

func (f *fake) Clear(ctx context.Context, m deliveries.Key, w deliveries.Mark) error {
	return f.call(ctx, func() {
		f.remove(m, func(o deliveries.Mark) bool {
			return w.Process != "" && o.Process == w.Process || w.Process == "" && o.Delivery <= w.Delivery
		})
	})
}

func (f *fake) Leave(ctx context.Context, process string) error {
	return f.call(ctx, func() {
		for m := range f.left {
			f.remove(m, func(o deliveries.Mark) bool { return o.Process == process })
		}
	})
}

// marksBy are the marks that deliveries in these processes left.
func marksBy(processes ...string) (found []deliveries.Mark) {
	for i, process := range processes {
		found = append(found, deliveries.Mark{Delivery: i + 1, Process: process})
	}
	return found
}

// leaveMarks sets what deliveries before left, of processes that are gone.
func (f *fake) leaveMarks(id string, n int) {
	f.set(func() {
		m := markOf(id)
		delete(f.left, m)
		for i := range n {
			f.left[m] = append(f.left[m], deliveries.Mark{Delivery: i + 1, Process: fmt.Sprintf("gone%d.1", i)})
		}
	})
}

func markOf(id string) deliveries.Key { return deliveries.Key{ID: id} }
