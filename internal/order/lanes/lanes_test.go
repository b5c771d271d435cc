package lanes_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/internal/order/lanes"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// item is a message, and how long it takes.
type item struct {
	key    []byte
	number int
	takes  time.Duration
	size   int
}

func config(running, items int, run func(*item)) lanes.Config[*item] {
	return lanes.Config[*item]{Running: running, Items: items, Bytes: 1 << 20, Run: run,
		Key: func(i *item) []byte { return i.key }, Size: func(i *item) int { return i.size }}
}

// inBubble lets rapid run inside of synctest.Test, where asking for the test's deadline panics.
type inBubble struct{ rapid.TB }

// Whatever the keys and times: the messages of a key run in order, never two at once, no more than so many in all, no
// more than so many are held, and a message waits only for its key, for a worker, or for room.
func TestProperty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(inBubble{t}, func(rt *rapid.T) {
			running, room := rapid.IntRange(1, 5).Draw(rt, "running"), rapid.IntRange(1, 8).Draw(rt, "items")
			var mu sync.Mutex
			busy, done, ran := map[string]bool{}, map[string]int{}, 0
			added, ended := 0, 0
			l := lanes.New(config(running, room, func(i *item) {
				key := string(i.key)
				mu.Lock()
				if i.key != nil {
					testkit.Check(rt, !busy[key] && done[key] <= i.number,
						"%q: %d runs, busy %v, %d has run", key, i.number, busy, done[key])
					busy[key], done[key] = true, i.number
				}
				if ran++; ran > running || added-ended > max(room, running)+1 { // and the one whose Add has not returned
					rt.Errorf("%d run, %d are held", ran, added-ended)
				}
				mu.Unlock()
				time.Sleep(i.takes)
				mu.Lock()
				if ran--; i.key != nil {
					busy[key] = false
				}
				ended++
				mu.Unlock()
			}))
			n := rapid.IntRange(0, 60).Draw(rt, "messages")
			for number := range n {
				i := &item{number: number, takes: time.Duration(rapid.IntRange(0, 9).Draw(rt, "ms")) * time.Millisecond,
					key:  rapid.SampledFrom([][]byte{nil, {}, []byte("a"), []byte("b"), []byte("c")}).Draw(rt, "key"),
					size: rapid.SampledFrom([]int{0, 1, 2 << 20}).Draw(rt, "size")}
				testkit.NoError(rt, l.Add(t.Context(), i))
				mu.Lock()
				added++
				mu.Unlock()
			}
			time.Sleep(time.Second)
			l.Close()
			testkit.Check(rt, ended == n, "%d of %d ran", ended, n)
		})
	})
}

// A key that takes long holds up its own messages, and others only when there is no room.
func TestSlowKeyHoldsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var mu sync.Mutex
		at := map[int]time.Duration{}
		l := lanes.New(config(2, 10, func(i *item) {
			time.Sleep(i.takes)
			mu.Lock()
			defer mu.Unlock()
			at[i.number] = time.Since(begun)
		}))
		defer l.Close()
		for number := range 12 {
			i := &item{key: []byte("fast"), number: number, takes: time.Second}
			if number < 3 {
				i.key, i.takes = []byte("slow"), time.Hour
			}
			testkit.NoError(t, l.Add(t.Context(), i))
		}
		check := func(after time.Duration, done, last int, lastAt time.Duration) {
			time.Sleep(after)
			mu.Lock()
			defer mu.Unlock()
			testkit.Check(t, len(at) == done && at[last] == lastAt, "done: %v", at)
		}
		check(time.Minute, 9, 11, 9*time.Second)
		check(3*time.Hour, 12, 2, 3*time.Hour)
	})
}

// Messages without a key wait for none. All that wait while workers are free begin, however late the workers wake up.
func TestEachWithoutKeyRunsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		l := lanes.New(config(50, 100, func(*item) { time.Sleep(time.Second) }))
		for _, n := range []int{1, 2, 50, 50} {
			for range n {
				testkit.NoError(t, l.Add(t.Context(), new(item)))
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		l.Close()
		testkit.Equal(t, "took", time.Since(begun), 4*time.Second)
	})
}

// What could not run at once is not taken, unless it waits for its key. Close drops what waits, ends an Add, and
// returns when what runs has returned. A context ends an Add too.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int32
		l := lanes.New(config(2, 10, func(*item) { ran.Add(1); time.Sleep(time.Minute) }))
		for _, key := range []string{"a", "a", "b"} {
			testkit.NoError(t, l.Add(t.Context(), &item{key: []byte(key)}))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		testkit.Is(t, l.Add(ctx, new(item)), context.DeadlineExceeded)
		go func() { time.Sleep(time.Second); l.Close() }()
		testkit.Is(t, l.Add(t.Context(), new(item)), lanes.ErrClosed)
		begun := time.Now()
		l.Close() // again
		testkit.Is(t, l.Add(t.Context(), new(item)), lanes.ErrClosed)
		testkit.Check(t, ran.Load() == 2 && time.Since(begun) == 58*time.Second,
			"%d ran, after %s", ran.Load(), time.Since(begun))
	})
}

// A key function that panics runs nothing, and the error says what to do.
func TestKeyPanics(t *testing.T) {
	c := config(1, 1, func(*item) { t.Error("ran") })
	c.Key = func(*item) []byte { panic("no account") }
	l := lanes.New(c)
	defer l.Close()
	testkit.Says(t, l.Add(t.Context(), new(item)), "Key panicked with no account: it must return")
}

// A key may be large, and there may be many: what is kept is bounded by what is in flight.
func TestLargeAndManyKeys(t *testing.T) {
	var longest atomic.Int32
	l := lanes.New(config(64, 64, func(i *item) {
		if n := int32(len(i.key)); n > longest.Load() {
			longest.Store(n)
		}
	}))
	large := bytes.Repeat([]byte("k"), 1<<20)
	for number := range 20_000 {
		testkit.NoError(t, l.Add(t.Context(), &item{key: fmt.Append(nil, number)}))
	}
	held := l.Held()
	testkit.Check(t, held <= 64, "%d keys are kept", held)
	testkit.NoError(t, l.Add(t.Context(), &item{key: large}))
	testkit.Eventually(t, "no key is kept", func() bool { return l.Held() == 0 })
	l.Close()
	testkit.Equal(t, "longest", longest.Load(), 1<<20)
}

// Promise P5: a message whose key has none waiting costs no allocation.
func TestAllocations(t *testing.T) {
	done := make(chan struct{})
	l := lanes.New(config(4, 100, func(*item) { done <- struct{}{} }))
	defer l.Close()
	items := make([]*item, 64)
	for n := range items {
		items[n] = &item{key: fmt.Append(nil, n)}
	}
	n := 0
	testkit.Equal(t, "allocations", testing.AllocsPerRun(10_000, func() {
		testkit.NoError(t, l.Add(t.Context(), items[n%len(items)]))
		<-done
		n++
	}), 0)
}

// A second goroutine adds beside the first: all run, and none waits although there is room.
func TestAddBeside(t *testing.T) {
	var ran atomic.Int64
	l := lanes.New(lanes.Config[string]{Running: 2, Items: 4, Bytes: 100, Key: func(s string) []byte { return []byte(s) },
		Size: func(string) int { return 1 }, Run: func(string) { ran.Add(1) }})
	const n = 2000
	var adding sync.WaitGroup
	for name, add := range map[string]func(context.Context, string) error{"first": l.Add, "second": l.AddBeside} {
		adding.Go(func() {
			for i := range n {
				testkit.Is(t, add(t.Context(), fmt.Sprint(name, i%3)), nil)
			}
		})
	}
	adding.Wait()
	testkit.Eventually(t, "all have run", func() bool { return ran.Load() == 2*n })
	l.Close()
	testkit.Is(t, l.AddBeside(t.Context(), "late"), lanes.ErrClosed)
}
