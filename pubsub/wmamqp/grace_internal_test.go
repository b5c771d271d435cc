package wmamqp

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func consumerWith(ctx context.Context, config SubscriberConfig) *consumer {
	config.Logger = logging.Wrap(watermill.NopLogger{}, nil)
	return &consumer{sub: &subscription{config: &config, ctx: ctx}}
}

// Promise P3: a message that was acked when the grace after its context ended is acked, however late the process comes
// to look. A pause of the process ends both, and a select takes any.
func TestAckedAtTheEndOfTheGrace(t *testing.T) {
	c := consumerWith(t.Context(), SubscriberConfig{settleGrace: time.Nanosecond})
	for round := range 1000 {
		d := &delivery{of: c, msg: message.NewMessage("m", nil)}
		d.msg.Ack()
		testkit.Require(t, c.grace(d), "round %d: it is requeued", round)
	}
}

// Promise P4: the waits of a message that is nacked again and again double to their bound, and stay there.
func TestPausesStayAtTheirBound(t *testing.T) {
	for _, first := range []time.Duration{1, 100 * time.Millisecond, 20 * time.Second, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			most := max(first, 36*time.Hour)
			c := consumerWith(t.Context(), SubscriberConfig{nackBackoff: first, maxNackBackoff: most})
			want := first
			for i := range 100 {
				began := time.Now()
				c.pause()
				waited := time.Since(began)
				testkit.Require(t, waited == want, "from %s on: the wait %d is %s, want %s", first, i, waited, want)
				if want *= 2; want > most {
					want = most
				}
			}
		})
	}
}
