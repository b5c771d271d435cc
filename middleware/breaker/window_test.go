package breaker

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/recent"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func of(i int) recent.Message {
	return recent.Of(chain.Keep(message.NewMessage(fmt.Sprint(i), nil)))
}

// Feature R12: what is remembered of failures is bounded, however many messages fail.
func TestEvidenceIsBounded(t *testing.T) {
	e, now := newWindow(), time.Now()
	for i := range 20 * recent.Most {
		e.note(of(i), classify.Verdict{Class: classify.ClassTransient}, time.Hour, false, now)
		testkit.Require(t, e.messages.Len() <= recent.Most && e.failed <= recent.Most,
			"%d messages remembered, %d counted", e.messages.Len(), e.failed)
	}
	for i := range 10 * maxMixed {
		e.succeeded(of(-1-i), false)
		all := e.among + e.others
		testkit.Require(t, all <= 20*recent.Most+maxMixed, "%d outcomes counted", all)
	}
}
