package stages_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature R4: a retry-after is never cut short, and no stage is gone through that is shorter: the next that is not, or
// the last, takes the message; one that asks for more than any wait is set aside at once.
func TestStagesRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, row := range map[string]struct {
			after time.Duration
			times []time.Duration
			stage string
		}{
			"none":            {0, []time.Duration{0, 5 * time.Second, 65 * time.Second, 665 * time.Second}, "1"},
			"shorter":         {time.Second, []time.Duration{0, 5 * time.Second, 65 * time.Second, 665 * time.Second}, "1"},
			"equal":           {5 * time.Second, []time.Duration{0, 5 * time.Second, 65 * time.Second, 665 * time.Second}, "1"},
			"of the second":   {6 * time.Second, []time.Duration{0, time.Minute, 11 * time.Minute}, "2"},
			"of the last":     {2 * time.Minute, []time.Duration{0, 10 * time.Minute}, "3"},
			"beyond the last": {15 * time.Minute, []time.Duration{0, 15 * time.Minute}, "3"},
			"all there is":    {24 * time.Hour, []time.Duration{0, 24 * time.Hour}, "3"},
			"more":            {24*time.Hour + 1, []time.Duration{0}, ""},
		} {
			s := newStaging(t, stages.Config{Jitter: -1}, nil)
			n := newNote()
			s.handle("billing", "orders", func(msg *message.Message) error {
				if n.add(msg) == 1 {
					return classify.Transient(errBoom, classify.RetryAfter(row.after))
				}
				return errBoom
			})
			s.passes(27*time.Hour, "1")
			got := n.of("1")
			wantTimes(t, got, row.times...)
			if len(got) > 1 && got[1].metadata[poison.KeyRetryStage] != row.stage || len(s.letters.all()) != 1 {
				t.Errorf("%s: handled %v, letters %v", name, got, s.letters.all())
			}
		}
	})
}
