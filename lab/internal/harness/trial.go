package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// ErrDown is what failing messages fail with. It is transient.
var ErrDown = errors.New("the payment service is down")

// Trial is one run over a topic whose messages are numbered, of which some fail each time.
type Trial struct {
	Ready  chan struct{} // set it to what is closed when all handlers are subscribed: counting starts after it
	Begins chan struct{} // closed with the first message
	Done   chan struct{} // closed when all good messages were handled, and all failing ones dead-lettered

	n, percent int

	began, last    atomic.Int64 // nanoseconds
	whole          atomic.Int64 // the time of Done
	good, letters  atomic.Int64
	failures       atomic.Int64
	handled, dead  []atomic.Bool // by number
	started, ended sync.Once
}

// NewTrial returns a Trial of n messages.
func NewTrial(n, percent int) *Trial {
	return &Trial{n: n, percent: percent, handled: make([]atomic.Bool, n), dead: make([]atomic.Bool, n),
		Begins: make(chan struct{}), Done: make(chan struct{})}
}

// failing spreads those that fail evenly.
func (t *Trial) failing(number int) bool {
	return (number+1)*t.percent/100 > number*t.percent/100
}

// Bad returns how many messages fail.
func (t *Trial) Bad() int { return t.n * t.percent / 100 }

// Handle is the handler.
func (t *Trial) Handle(msg *message.Message) error {
	t.started.Do(func() {
		if t.Ready != nil {
			<-t.Ready
		}
		t.began.Store(time.Now().UnixNano())
		close(t.Begins)
	})
	number := NumberOf(msg.Payload)
	if t.failing(number) {
		t.failures.Add(1)
		return ErrDown
	}
	if !t.handled[number].Swap(true) {
		t.last.Store(time.Now().UnixNano())
		t.good.Add(1)
		t.check()
	}
	return nil
}

// Letter is the hook OnDeadLetter.
func (t *Trial) Letter(_ context.Context, l poison.Letter) {
	if number := NumberOf(l.Original.Payload); !t.dead[number].Swap(true) {
		t.letters.Add(1)
		t.check()
	}
}

func (t *Trial) check() {
	if t.good.Load() == int64(t.n-t.Bad()) && t.letters.Load() == int64(t.Bad()) {
		t.ended.Do(func() {
			t.whole.Store(time.Now().UnixNano())
			close(t.Done)
		})
	}
}

// Finished returns an error that says what is missing, after each of the failing has been tried so often.
func (t *Trial) Finished(attempts int) error {
	if good, letters := int(t.good.Load()), int(t.letters.Load()); good != t.n-t.Bad() || letters != t.Bad() {
		return fmt.Errorf("%d of %d good messages were handled, and %d of %d failing ones set aside", good, t.n-t.Bad(),
			letters, t.Bad())
	}
	if failures := int(t.failures.Load()); failures < attempts*t.Bad() {
		return fmt.Errorf("%d failing messages failed %d times, which is not %d times each", t.Bad(), failures,
			attempts)
	}
	return nil
}

// Live returns how many good messages a second were handled, from the first delivery to the last of them.
func (t *Trial) Live() float64 {
	return float64(t.good.Load()) / (time.Duration(t.last.Load() - t.began.Load())).Seconds()
}

// Took returns how long the trial took, from the first delivery until all good messages were handled and all failing
// ones dead-lettered.
func (t *Trial) Took() time.Duration { return time.Duration(t.whole.Load() - t.began.Load()) }
