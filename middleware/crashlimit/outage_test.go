package crashlimit

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
)

// Feature D10: protection never stops the consumer: without a store messages are handled, none is refused, and it is
// asked as often as the process beats.
func TestStoreDownWhileMarking(t *testing.T) {
	within(t, func(t *testing.T, f *fake) {
		log := &testkit.Log{}
		l := afterCrash(t, f, options{Config: Config{Shared: observe.Shared{Logger: log}}})
		h := l.Middleware(succeed)
		f.leaveMarks("0", 3)
		f.set(func() { f.down = true })
		before := f.calls
		for i := range 600 {
			testkit.Must(h(newMessage(strconv.Itoa(i))))
			time.Sleep(100 * time.Millisecond)
		}
		n := f.count(func() int { return f.calls }) - before
		testkit.Check(t, n <= 31, "%d statements for 600 messages in a minute", n)
		f.set(func() { f.down, f.hang = false, make(chan struct{}) })
		begin := time.Now()
		for range 100 {
			testkit.Is(t, testkit.Err(h(newMessage("a"))), nil)
		}
		took := time.Since(begin)
		testkit.Check(t, took <= defaultWithin+time.Second, "100 messages waited for %s", took)
		n = len(log.Lines(watermill.ErrorLogLevel, "crash limit fails"))
		testkit.Check(t, n == 1, "logged %d times", n)
		close(f.hang)
		tick(2)
		n = len(log.Lines(watermill.InfoLogLevel, "crash limit answers again"))
		testkit.Check(t, n == 1 && log.Has("answers again", "unmarked", int64(699)), "logged %d times", n)
		seen := 0
		_, _ = l.Middleware(func(*message.Message) ([]*message.Message, error) { seen = f.marksOf("b"); return nil, nil })(newMessage("b"))
		testkit.Equal(t, "the store is not asked again", seen, 1)
	})
}

// Feature D10: a store whose beats succeed and whose marks fail is asked every ten seconds.
func TestOutageComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o outage
		began := 0
		for begin := time.Now(); time.Since(begin) < 10*time.Minute; time.Sleep(time.Second) {
			if !o.lasts() {
				began++
				o.began(watermill.NopLogger{}, errDown)
			}
			o.note(watermill.NopLogger{}, nil)
		}
		testkit.Check(t, began <= 61, "%d outages in 10 minutes", began)
	})
}

// Feature D10: a delivery that returned does not count, also where its mark could not be removed then.
func TestOwedMarks(t *testing.T) {
	marks(t, options{Config: Config{Heartbeat: time.Minute}}, func(t *testing.T, f *fake, l *Limit) {
		fails := func(*message.Message) ([]*message.Message, error) {
			f.set(func() { f.down = true })
			return nil, errBoom
		}
		for range 5 {
			_, _ = l.Middleware(fails)(newMessage("a"))
			f.set(func() { f.down = false })
			testkit.Require(t, f.marksOf("a") == 1, "the mark is not left")
			time.Sleep(time.Minute)
			synctest.Wait()
			testkit.Equal(t, "the mark is left after a beat", f.marksOf("a"), 0)
			time.Sleep(2 * time.Minute) // so that the outage is over, also one that came back soon
			synctest.Wait()
		}
		_, _ = l.Middleware(fails)(newMessage("a"))
		f.set(func() { f.down = false })
		err := l.end()
		testkit.Check(t, err == nil && f.marksOf("a") == 0, "the mark is left after an orderly end %v", err)
	})
}

// Feature D10: inside of an outer message's claim, which holds the database, a message goes unmarked.
func TestInsideOfAClaim(t *testing.T) {
	marks(t, options{}, func(t *testing.T, f *fake, l *Limit) {
		f.exclusive = true
		before := f.calls
		_, err := l.Middleware(succeed)(newMessage("a"))
		testkit.Check(t, err == nil && f.calls == before, "%d statements: %v", f.calls-before, err)
		lazy := newLimit(t, options{Config: Config{Store: f}})
		_, err = lazy.Middleware(succeed)(newMessage("a"))
		testkit.Check(t, err == nil && f.calls == before, "%d statements to register: %v", f.calls-before, err)
	})
}
