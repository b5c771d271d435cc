package breaker

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func of(i int) recent.Message {
	return recent.Of(chain.Keep(message.NewMessage(fmt.Sprint(i), nil)))
}

// Feature R12: what is remembered of failures is bounded, however many messages fail.
func TestEvidenceIsBounded(t *testing.T) {
	e, now := newWindow(), time.Now()
	for i := range 20 * recent.Most {
		e.note(of(i), classify.Verdict{Class: classify.ClassTransient}, time.Hour, now)
		testkit.Require(t, e.messages.Len() <= recent.Most && e.failed <= recent.Most,
			"%d messages remembered, %d counted", e.messages.Len(), e.failed)
	}
}

// Feature R12: a message counts once, however often it fails. If it succeeds later, it counts as handled.
func TestEvidenceCountsMessages(t *testing.T) {
	e, now := newWindow(), time.Now()
	unknown := classify.Verdict{}
	for range 5 {
		testkit.Check(t, !e.note(of(1), unknown, time.Second, now), "blamed, and no other message succeeded")
	}
	testkit.Check(t, e.failed == 1 && e.distinct == 1, "%+v", e)
	e.succeeded(of(1), false)
	testkit.Check(t, e.failed == 0 && e.passed == 1 && e.distinct == 0, "%+v", e)
	e.note(of(2), unknown, time.Second, now)
	e.succeeded(of(3), false)
	testkit.Check(t, e.note(of(2), unknown, time.Second, now), "another message succeeded in between")
	if e.note(of(4), unknown, time.Second, now.Add(3*time.Second)); e.failed != 1 || e.passed != 0 {
		t.Errorf("after the window: %+v", e)
	}
}

// Feature R12: where errors that say unavailable are usual among successes, some in a row are no outage.
func TestEvidenceMixed(t *testing.T) {
	e, now := newWindow(), time.Now()
	testkit.Check(t, !e.mixed(), "nothing is known")
	for i := range 100 {
		if i%2 == 0 {
			e.note(of(i), classify.Verdict{Unavailable: true}, time.Minute, now)
		} else {
			e.succeeded(of(i), false)
		}
	}
	testkit.Check(t, e.mixed(), "half of the messages say unavailable")
	for i := range 1000 {
		e.succeeded(of(i), false)
	}
	testkit.Check(t, !e.mixed(), "one in twenty says unavailable")
}
