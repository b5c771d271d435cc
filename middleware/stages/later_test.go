package stages_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Feature R5: a part further in sees whether its failure would go to a next stage, or to the dead letters.
func TestLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, time.Minute)}, nil)
		var seen []string
		watch := chain.Step(func(next chain.Handler) chain.Handler {
			return func(c *chain.Call) ([]*message.Message, chain.Outcome) {
				row := fmt.Sprint(c.HasStages())
				for _, v := range []classify.Verdict{
					{Class: classify.ClassTransient}, {}, {RetryAfter: 24 * time.Hour}, {RetryAfter: 25 * time.Hour}, {Class: classify.ClassPermanent},
				} {
					row += fmt.Sprint(" ", c.HasNextStage(v))
				}
				seen = append(seen, row)
				return next(c)
			}
		})
		s.router = testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: time.Hour}, watermill.NopLogger{}))
		s.router.AddMiddleware(chain.Enter(chain.StepOf(newQueue(s, s.letters)), chain.StepOf(s.stages), watch))
		s.handle("billing", "orders", func(*message.Message) error { return errBoom })
		s.passes(time.Hour, "1")
		want := []string{"true true true true false false", "true true true true false false", "true false false false false false"}
		if !slices.Equal(seen, want) || len(s.letters.all()) != 1 {
			t.Errorf("seen\n%s\n%d letters", strings.Join(seen, "\n"), len(s.letters.all()))
		}
	})
}
