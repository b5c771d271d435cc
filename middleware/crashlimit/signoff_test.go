package crashlimit

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature D10, promise P3: what an orderly end leaves behind is signed off before the end, and what comes after leaves
// nothing.
func TestOrderlyEndLeavesNoMarks(t *testing.T) {
	marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		release := make(chan struct{})
		var all sync.WaitGroup
		hold := func(id string) {
			all.Go(func() {
				_, _ = l.Middleware(func(*message.Message) ([]*message.Message, error) { <-release; return nil, nil })(newMessage(id))
			})
			synctest.Wait()
		}
		hold("a")
		f.leaveMarks("other", 2)
		l.stop()
		if f.marksOf("a") != 0 || f.marksOf("other") != 2 || f.count(func() int { return len(f.processes) }) != 2 {
			t.Errorf("%d marks, and %d of others, and %d processes", f.marksOf("a"), f.marksOf("other"), len(f.processes))
		}
		hold("late")
		hold("other")
		time.Sleep(time.Minute) // it waited to be handled alone
		synctest.Wait()
		testkit.Check(t, f.marksOf("late") == 0 && f.marksOf("other") == 2,
			"what was received last leaves %d marks, and %d of others", f.marksOf("late"), f.marksOf("other"))
		close(release)
		all.Wait()
		testkit.Check(t, f.count(func() int { return len(f.processes) }) == 1 && l.admission.isEmpty(),
			"not signed off in the end")
	})
}

// Feature D10: a sign-off that fails is an error.
func TestSignOffFails(t *testing.T) {
	begins(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		f.down = true
		wantText(t, l.end(), "sign this process off", errDown.Error())
	})
}

// Feature D10: who closes, and when, makes no difference: while a handler runs its process is registered, and in the
// end it is not.
func TestSignOffUnderLoad(t *testing.T) {
	f := newFake()
	l := newLimit(t, options{Config: Config{Store: f}})
	h := l.Middleware(func(*message.Message) ([]*message.Message, error) {
		if rand.N(8) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		testkit.Equal(t, "handled without being registered", f.count(func() int { return len(f.processes) }), 1)
		return nil, nil
	})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 3000 {
				_, _ = h(newMessage("a"))
				if rand.N(4) == 0 {
					time.Sleep(rand.N(10 * time.Microsecond))
				}
			}
		})
	}
	all.Go(func() {
		for range 2000 {
			testkit.Is(t, l.end(), nil)
			if rand.N(8) == 0 { // a router begins anew
				l.closing.Store(false)
			}
		}
	})
	all.Wait()
	err := l.end()
	testkit.Check(t, err == nil && len(f.processes) == 0, "%d processes are left: %v", len(f.processes), err)
}

// Feature D10: a message that comes when the end is all but decided keeps its process registered.
func TestSignOffAtTheLastMoment(t *testing.T) {
	f := newFake()
	l := newLimit(t, options{Config: Config{Store: f}})
	for range 20 {
		testkit.NoError(t, l.start())
		entered, release, handled, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error)
		l.mu.Lock()
		l.closing.Store(true)
		go func() { ended <- l.signOffIfIdle() }()
		time.Sleep(100 * time.Microsecond) // as a rule it waits for the lock then; if not, there is less to see
		go func() {
			defer close(handled)
			_, _ = l.Middleware(func(*message.Message) ([]*message.Message, error) { close(entered); <-release; return nil, nil })(newMessage("a"))
		}()
		<-entered
		l.mu.Unlock()
		if err := <-ended; err != nil || f.count(func() int { return len(f.processes) }) != 1 {
			t.Error("signed off under a handler", err)
		}
		close(release)
		<-handled
		testkit.Equal(t, "not signed off", f.count(func() int { return len(f.processes) }), 0)
	}
}
