package crashlimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// fake is a store in memory, for what is about time alone. Its clock is the test's.
type fake struct {
	mu        sync.Mutex
	processes map[string]*fakeProcess
	left      map[mark][]written
	calls     int
	down      bool
	hang      chan struct{} // what statements wait for
	exclusive bool          // what within answers
}

type fakeProcess struct {
	beats  int64
	beat   time.Duration
	lostAt time.Time
}

var errDown = errors.New("the store is down")

func newFake() *fake { return &fake{processes: map[string]*fakeProcess{}, left: map[mark][]written{}} }

func (f *fake) call(ctx context.Context, do func()) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
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

func (f *fake) within(context.Context) bool                      { return f.exclusive }
func (f *fake) sweep(ctx context.Context, _ time.Duration) error { return f.call(ctx, func() {}) }

func (f *fake) register(ctx context.Context, r registration) error {
	return f.call(ctx, func() { f.processes[r.id] = &fakeProcess{beat: r.interval} })
}

func (f *fake) beat(ctx context.Context, id string) (there bool, err error) {
	err = f.call(ctx, func() {
		if p := f.processes[id]; p != nil {
			there = true
			p.beats++
			p.lostAt = time.Time{}
		}
	})
	return there, err
}

func (f *fake) others(ctx context.Context, id string) (rows []row, err error) {
	err = f.call(ctx, func() {
		for other, p := range f.processes {
			if other != id {
				r := row{id: other, beats: p.beats, interval: p.beat, lost: !p.lostAt.IsZero()}
				if r.lost {
					r.lostFor = time.Since(p.lostAt)
				}
				rows = append(rows, r)
			}
		}
	})
	return rows, err
}

func (f *fake) lose(ctx context.Context, id string, beats int64) (lost bool, err error) {
	err = f.call(ctx, func() {
		if p := f.processes[id]; p != nil && p.beats == beats && p.lostAt.IsZero() {
			p.lostAt, lost = time.Now(), true
		}
	})
	return lost, err
}

func (f *fake) forget(ctx context.Context, id string) error {
	return f.call(ctx, func() {
		if p := f.processes[id]; p != nil && !p.lostAt.IsZero() {
			delete(f.processes, id)
		}
	})
}

func (f *fake) signOff(ctx context.Context, id string) error {
	return f.call(ctx, func() { delete(f.processes, id) })
}

func (f *fake) enter(ctx context.Context, m mark, w written) (entered bool, err error) {
	err = f.call(ctx, func() {
		if entered = !slices.ContainsFunc(f.left[m], func(o written) bool { return o.delivery == w.delivery }); entered {
			f.left[m] = append(f.left[m], w)
		}
	})
	return entered, err
}

func (f *fake) marks(ctx context.Context, m mark) (found []written, err error) {
	err = f.call(ctx, func() {
		found = slices.SortedFunc(slices.Values(f.left[m]), func(a, b written) int { return a.delivery - b.delivery })
	})
	return found, err
}

func (f *fake) remove(m mark, gone func(written) bool) {
	if f.left[m] = slices.DeleteFunc(f.left[m], gone); len(f.left[m]) == 0 {
		delete(f.left, m)
	}
}

func (f *fake) clear(ctx context.Context, m mark, w written) error {
	return f.call(ctx, func() {
		f.remove(m, func(o written) bool {
			return w.process != "" && o.process == w.process || w.process == "" && o.delivery <= w.delivery
		})
	})
}

func (f *fake) leave(ctx context.Context, process string) error {
	return f.call(ctx, func() {
		for m := range f.left {
			f.remove(m, func(o written) bool { return o.process == process })
		}
	})
}

// leaveMarks sets what deliveries before left, of processes that are gone.
func (f *fake) leaveMarks(id string, n int) {
	f.set(func() {
		m := markOf(id)
		delete(f.left, m)
		for i := range n {
			f.left[m] = append(f.left[m], written{i + 1, fmt.Sprintf("gone%d.1", i)})
		}
	})
}

func markOf(id string) mark { return mark{id: id} }
