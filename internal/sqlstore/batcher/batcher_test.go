package batcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writer counts what is written, alone and together.
type writer struct {
	*Batcher[int]
	release chan struct{} // a write alone waits for it, and so does a batch
	fail    func(items []int) ([]int, error)

	mu      sync.Mutex
	alone   []int
	batches [][]int
	ended   error // of the context of a batch
}

func newWriter(lanes, rows, bytes int) *writer {
	w := &writer{release: make(chan struct{})}
	w.Batcher = New(Config[int]{Lanes: lanes, Rows: rows, Bytes: bytes, Timeout: 5 * time.Second, Together: func(ctx context.Context, items []int) ([]int, error) {
		select {
		case <-w.release:
		case <-ctx.Done():
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ended = ctx.Err()
			return nil, ctx.Err()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.batches = append(w.batches, slices.Sorted(slices.Values(items)))
		if w.fail != nil {
			return w.fail(items)
		}
		return nil, nil
	}})
	return w
}

func (w *writer) put(ctx context.Context, n, size int) error {
	return w.Do(ctx, n, size, func() error {
		select {
		case <-w.release:
		case <-ctx.Done():
			return ctx.Err()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.alone = append(w.alone, n)
		return nil
	})
}

// puts begins to put the numbers, in their order, and returns what waits for their errors.
func (w *writer) puts(ctx context.Context, size int, numbers ...int) func() []error {
	errs := make([]error, len(numbers))
	var all sync.WaitGroup
	for i, n := range numbers {
		all.Go(func() { errs[i] = w.put(ctx, n, size) })
		synctest.Wait()
	}
	return func() []error { all.Wait(); return errs }
}

// lanes returns how many run when all has come to rest.
func (w *writer) lanes() int {
	synctest.Wait()
	w.Batcher.mu.Lock()
	defer w.Batcher.mu.Unlock()
	return w.running + len(w.waiting)
}

// wrote checks what is written together and alone, when all has come to rest.
func (w *writer) wrote(t *testing.T, together, alone string) {
	t.Helper()
	testkit.Equal(t, "lanes", w.lanes(), 0)
	testkit.Equal(t, "together", fmt.Sprint(w.batches), together)
	slices.Sort(w.alone)
	testkit.Equal(t, "alone", fmt.Sprint(w.alone), alone)
}

func none(t *testing.T, errs []error) {
	t.Helper()
	testkit.Is(t, errors.Join(errs...), nil)
}

func TestBatcher_together(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(1, 3, 1000)
		begun := time.Now()
		wait := w.puts(t.Context(), 1, 1, 2, 3, 4, 5, 6) // the first goes at once, the others wait for it
		close(w.release)
		none(t, wait())
		testkit.Equal(t, "it takes", time.Since(begun), 0)
		w.wrote(t, "[[2 3 4] [5 6]]", "[1]") // the last is alone behind a full batch
		none(t, w.puts(t.Context(), 1, 7)())
		w.wrote(t, "[[2 3 4] [5 6]]", "[1 7]")
	})
}

func TestBatcher_bytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(1, 100, 100)
		waits := []func() []error{
			w.puts(t.Context(), 1, 1), w.puts(t.Context(), 25, 2, 3, 4, 5, 6),
			w.puts(t.Context(), 26, 7), // which is large, and waits for none
		}
		close(w.release)
		for _, wait := range waits {
			none(t, wait())
		}
		w.wrote(t, "[[2 3 4 5]]", "[1 6 7]")
	})
}

// One bad row does not fail the others, nor does a batch that panics.
func TestBatcher_batchFails(t *testing.T) {
	for name, fail := range map[string]func([]int) ([]int, error){
		"error":    func([]int) ([]int, error) { return nil, errors.New("a bad row") },
		"panic":    func([]int) ([]int, error) { panic("a driver") },
		"left out": func(items []int) ([]int, error) { return []int{0, 1, 2}[:len(items)], nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWriter(1, 100, 100)
				w.fail = fail
				wait := w.puts(t.Context(), 1, 1, 2, 3, 4)
				close(w.release)
				none(t, wait())
				w.wrote(t, "[[2 3 4]]", "[1 2 3 4]")
			})
		})
	}
}

// A panic of a call's own write is that caller's, and the others go on.
func TestBatcher_panicAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(1, 100, 100)
		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			_ = w.Do(t.Context(), 1, 1, func() error { <-w.release; panic("a driver") })
		}()
		synctest.Wait()
		wait := w.puts(t.Context(), 1, 2, 3)
		close(w.release)
		testkit.Equal(t, "panic", <-panicked, any("a driver"))
		none(t, wait())
		w.wrote(t, "[[2 3]]", "[]")
	})
}

// A caller whose context ends has its answer, before its batch and while it is written. Others go on.
func TestBatcher_contextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(1, 100, 100)
		first, stopFirst := context.WithCancel(t.Context())
		some, stopSome := context.WithCancel(t.Context())
		gone, stopGone := context.WithCancel(t.Context())
		defer stopSome()
		waits := []func() []error{w.puts(first, 1, 1), w.puts(gone, 1, 2), w.puts(some, 1, 3, 4), w.puts(t.Context(), 1, 5)}
		stopGone()
		want := func(wait func() []error) {
			t.Helper()
			for _, err := range wait() {
				testkit.Check(t, errors.Is(err, context.Canceled), "%v", err)
			}
		}
		want(waits[1])
		stopFirst() // and a batch begins, of 3, 4 and 5
		want(waits[0])
		synctest.Wait()
		stopSome()
		want(waits[2])
		w.release <- struct{}{}
		none(t, waits[3]())
		w.wrote(t, "[[3 4 5]]", "[]")
		testkit.Is(t, w.ended, nil)
	})
}

// A batch that hangs ends after its time, and its callers write alone.
func TestBatcher_hangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(1, 100, 100)
		hangs, stop := context.WithCancel(t.Context())
		first := w.puts(hangs, 1, 1)
		var late atomic.Int64
		var all sync.WaitGroup
		for n := range 2 {
			all.Go(func() {
				testkit.Is(t, w.Do(t.Context(), n, 1, func() error { late.Add(1); return nil }), nil)
			})
		}
		synctest.Wait()
		stop()
		first()
		begun := time.Now()
		all.Wait()
		testkit.Check(t, late.Load() == 2 && time.Since(begun) == 5*time.Second && w.lanes() == 0,
			"%d went alone after %s", late.Load(), time.Since(begun))
	})
}

// Each of many items is written once.
func TestBatcher_each(t *testing.T) {
	w := newWriter(2, 7, 100)
	close(w.release)
	w.fail = func(items []int) ([]int, error) {
		if slices.Contains(items, 13) {
			w.batches = w.batches[:len(w.batches)-1]
			return nil, errors.New("a bad row")
		}
		return nil, nil
	}
	var all sync.WaitGroup
	for n := range 500 {
		all.Go(func() {
			testkit.Is(t, w.put(t.Context(), n, 1+n%30), nil)
		})
	}
	all.Wait()
	written := slices.Concat(append(w.batches, w.alone)...)
	slices.Sort(written)
	for n := range 500 {
		testkit.Require(t, len(written) == 500 && written[n] == n, "%d are written: %v", len(written), written)
	}
}
