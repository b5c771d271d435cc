package delayed

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// A topic that refuses is left alone for longer and longer, and what is remembered of topics is bounded.
func TestTopics(t *testing.T) {
	all, now := topics{}, time.Now()
	for i := range 2 {
		all.refused("a", 1, now)
		if wait := all.wait("a", now); wait != 0 || all.atOnce("a", 10) != 1 || all.refusing("a", now) {
			t.Errorf("after %d refusals: %s", i+1, wait)
		}
	}
	last := time.Duration(0)
	for i := range 40 {
		all.refused("a", 1, now)
		wait := all.wait("a", now)
		if wait > maxTopicWait || wait <= last && i < 8 || wait < firstTopicWait/2 || !all.refusing("a", now) {
			t.Errorf("after %d refusals: %s", i+3, wait)
		}
		last = wait
	}
	if all.took("a"); len(all) != 0 || all.atOnce("a", 10) != 10 {
		t.Error("what it took is not believed")
	}
	all.refused("b", 3, now)
	wait := all.wait("b", now)
	testkit.Check(t, wait > 0 && wait <= firstTopicWait, "after a refusal of several: %s", wait)
	for i := range 3 {
		n := all.atOnce("b", 10)
		testkit.Check(t, n == 1, "%d at once after %d", n, i)
		all.took("b")
	}
	testkit.Equal(t, "at once", all.atOnce("b", 10), 10)
	for i := range 3 * maxTopics {
		all.refused(fmt.Sprint(i), 2, now.Add(time.Duration(i)*time.Millisecond))
	}
	testkit.Check(t, len(all) <= maxTopics && len(all) >= 50, "%d are remembered", len(all))
}

// A bell wakes who sleeps for longer, and is not missed by who is about to.
func TestBell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slept := func(d time.Duration, before, during func(*alarm)) time.Duration {
			b, begun := newAlarm(), time.Now()
			b.reset()
			before(b)
			go func() {
				time.Sleep(time.Second)
				during(b)
			}()
			b.sleep(t.Context(), d)
			passed := time.Since(begun)
			time.Sleep(time.Hour)
			if b.reset(); !b.until.IsZero() || b.asleep {
				t.Error("it is not as it was")
			}
			return passed
		}
		nothing := func(*alarm) {}
		in := func(d time.Duration) func(*alarm) { return func(b *alarm) { b.bringForward(time.Now().Add(d)) } }
		for _, c := range []struct {
			before, during func(*alarm)
			want           time.Duration
		}{
			{nothing, nothing, time.Minute},
			{in(2 * time.Minute), in(2 * time.Minute), time.Minute},
			{in(3 * time.Second), nothing, 3 * time.Second},
			{in(-time.Second), nothing, 0},
			{nothing, in(0), time.Second},
			{in(5 * time.Second), in(2 * time.Second), 3 * time.Second},
			{in(2 * time.Second), in(5 * time.Second), 2 * time.Second},
			{func(b *alarm) { in(4 * time.Second)(b); in(2 * time.Second)(b); in(6 * time.Second)(b) }, nothing, 2 * time.Second},
		} {
			testkit.Equal(t, "slept", slept(time.Minute, c.before, c.during), c.want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begun := time.Now()
		if newAlarm().sleep(ctx, time.Hour); time.Since(begun) != time.Second {
			t.Error("it sleeps on")
		}
	})
}
