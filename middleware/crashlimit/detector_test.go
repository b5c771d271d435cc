package crashlimit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
)

// tick lets n beats pass.
func tick(n int) {
	time.Sleep(time.Duration(n) * 2 * time.Second)
	synctest.Wait()
}

func started(t *testing.T, f *fake, config options) *Limit {
	t.Helper()
	config.Store = f
	l := newLimit(t, config)
	testkit.NoError(t, l.start())
	return l
}

func wantMode(t *testing.T, l *Limit, want int32, when string) {
	t.Helper()
	testkit.Equal(t, when+": mode", l.mode.Load(), want)
}

// crash ends a process as SIGKILL does: its row stays and beats no more.
func crash(l *Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current.cancel()
	<-l.current.done
	l.current = nil
}

// Feature D10: a process that begins alone, or after one that ended in order, marks nothing. Beside a process that
// lives a new one marks until that has beaten twice, or signed off, and the other not at all.
func TestOrderlyEndIsNotMarked(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		for range 3 {
			first := started(t, f, options{})
			tick(10)
			wantMode(t, first, quiet, "alone")
			second := started(t, f, options{})
			wantMode(t, second, marking, "the new one at once")
			tick(1)
			wantMode(t, second, marking, "the new one after one beat, which may be late")
			tick(2)
			wantMode(t, second, quiet, "the new one after proof of life")
			wantMode(t, first, quiet, "the first")
			testkit.Is(t, second.end(), nil)
			third := started(t, f, options{})
			testkit.Is(t, first.end(), nil)
			wantMode(t, third, marking, "at once")
			tick(1)
			wantMode(t, third, quiet, "after the first signed off")
			if err := third.end(); err != nil || len(f.processes) != 0 {
				t.Errorf("%d processes after an orderly end: %v", len(f.processes), err)
			}
		}
	})
}

// Feature D10: after a crash the next process marks from its first message on, until things have run clean. A last beat
// that was on its way when its process ended does not prove that it lives.
func TestRestartAfterCrash(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		first := started(t, f, options{})
		id := first.current.id
		crash(first)
		second := started(t, f, options{})
		wantMode(t, second, marking, "at once")
		_, _ = f.Beat(t.Context(), id)
		tick(3)
		wantMode(t, second, marking, "after the late beat")
		third := started(t, f, options{})
		wantMode(t, third, marking, "who begins when the loss is known")
		time.Sleep(9 * time.Minute)
		wantMode(t, second, marking, "before things ran clean for long enough")
		time.Sleep(90 * time.Second)
		wantMode(t, second, quiet, "afterwards")
		wantMode(t, third, quiet, "afterwards")
		testkit.Equal(t, "processes are left: the lost one is not forgotten", len(f.processes), 2)
	})
}

// Feature D10: processes that live notice the end of another, and each new end extends their marking.
func TestAnothersCrash(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		first, second := started(t, f, options{}), started(t, f, options{})
		third, fourth := started(t, f, options{}), started(t, f, options{})
		tick(5)
		wantMode(t, first, quiet, "before")
		wantMode(t, fourth, quiet, "before")
		crash(second)
		tick(2)
		wantMode(t, first, quiet, "after beats that may be late")
		tick(3)
		wantMode(t, first, marking, "after the crash")
		wantMode(t, fourth, marking, "after the crash")
		time.Sleep(8 * time.Minute)
		crash(third)
		time.Sleep(8 * time.Minute)
		wantMode(t, first, marking, "extended")
		time.Sleep(3 * time.Minute)
		wantMode(t, first, quiet, "afterwards")
		_ = fourth.end()
	})
}

// Feature D10: a process that beats more slowly than this one is not taken for dead.
func TestSlowBeats(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		first := started(t, f, options{Config: Config{Heartbeat: 30 * time.Second}})
		second := started(t, f, options{})
		time.Sleep(2 * time.Minute)
		wantMode(t, second, quiet, "after proof of life")
		for range 20 {
			time.Sleep(10 * time.Second)
			wantMode(t, second, quiet, "between slow beats")
		}
		_ = first.end()
	})
}

// Feature D10: a detector that was suspended, or had no database, takes no process for dead because of that.
func TestSuspendedObserver(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		first, second := started(t, f, options{}), started(t, f, options{})
		tick(5)
		f.set(func() { f.down = true })
		time.Sleep(5 * time.Minute)
		f.set(func() { f.down = false })
		tick(10)
		wantMode(t, first, quiet, "after an outage")
		wantMode(t, second, quiet, "after an outage")
		o := detector{interval: time.Second, quietAfter: time.Minute}
		now := time.Now()
		o.look(now, nil)
		o.look(now, []deliveries.Process{{ID: "a", Beats: 1}})
		stale, _ := o.look(now.Add(time.Hour), []deliveries.Process{{ID: "a", Beats: 1}})
		testkit.Check(t, len(stale) == 0, "who slept for an hour takes another one for dead")
	})
}

// Feature D10: an outage is no clean run: marking goes on, and ends when the store can be seen again.
func TestOutageKeepsMarking(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		crash(started(t, f, options{}))
		l := started(t, f, options{})
		tick(5)
		f.set(func() { f.down = true })
		time.Sleep(time.Hour)
		wantMode(t, l, marking, "in the outage")
		f.set(func() { f.down = false })
		tick(3)
		wantMode(t, l, quiet, "after it")
	})
}

// Feature D10: a process that was suspended and taken for lost lives again, and one that was forgotten registers again.
func TestRevival(t *testing.T) {
	begins(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		tick(1)
		id := l.current.id
		f.set(func() { f.processes[id].lostAt = time.Now() })
		tick(1)
		testkit.Check(t, f.count(func() int { return len(f.processes) }) == 1 && f.processes[id].lostAt.IsZero(),
			"it is lost still")
		f.set(func() { delete(f.processes, id) })
		tick(1)
		testkit.Equal(t, "it is forgotten still", f.count(func() int { return len(f.processes) }), 1)
	})
}

// Feature D10: a store that is down when the router starts is an error that says what to do; a lazy start goes on, and
// catches up when the store is there.
func TestStoreDownAtStart(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		crash(started(t, f, options{}))
		f.down = true
		l := newLimit(t, options{Config: Config{Store: f}})
		err := l.start()
		wantText(t, err, "register this process", "start the router again", errDown.Error())
		if _, err := l.Middleware(succeed)(newMessage("a")); err != nil {
			t.Error("a store that is down stops messages:", err)
		}
		wantMode(t, l, quiet, "without a store")
		tick(2)
		f.set(func() { f.down = false })
		tick(1)
		wantMode(t, l, marking, "when the store is there")
	})
}

// Feature D10: registration by the first message is bounded in time.
func TestLazyStartIsBounded(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		f.hang = make(chan struct{})
		l := newLimit(t, options{Config: Config{Store: f}})
		begin := time.Now()
		for range 3 {
			testkit.Is(t, testkit.Err(l.Middleware(succeed)(newMessage("a"))), nil)
		}
		took := time.Since(begin)
		testkit.Check(t, took <= defaultWithin, "messages waited for %s", took)
		close(f.hang)
	})
}
