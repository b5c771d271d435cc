package stages_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
)

// chained replaces the router's middlewares: one chain of steps, as the front door composes it, or each part on its
// own.
func (s *staging) chained(together bool, queue *poison.Queue, retry *middleware.Retry) {
	s.Helper()
	s.router = testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: time.Hour}, watermill.NopLogger{}))
	if together {
		s.router.AddMiddleware(chain.EnterParts(queue, s.stages, retry, chain.Recover))
		return
	}
	s.router.AddMiddleware(queue.Middleware, s.stages.Middleware, retry.Middleware, middleware.Recover)
}

// Features R1, R5, C5: what is tried at once comes before each stage: nothing by default where a stage waits in the
// same chain, and what is said, in all or for a class, where it is. Attempts add up.
func TestStagesAroundRetry(t *testing.T) {
	quickly := middleware.Backoff{Initial: time.Millisecond, Max: time.Millisecond}
	policy := map[classify.Class]middleware.Policy{classify.ClassTransient: {Attempts: 3}}
	for name, row := range map[string]struct {
		together  bool
		retry     middleware.RetryConfig
		transient int // invocations, with two stages
		unknown   int
	}{
		"by default":             {true, middleware.RetryConfig{Backoff: quickly}, 3, 3},
		"attempts":               {true, middleware.RetryConfig{Backoff: quickly, Attempts: 2}, 6, 6},
		"of a class":             {true, middleware.RetryConfig{Backoff: quickly, PerClass: policy}, 9, 3},
		"class and attempts":     {true, middleware.RetryConfig{Backoff: quickly, PerClass: policy, Attempts: 2}, 9, 6},
		"apart, by default":      {false, middleware.RetryConfig{Backoff: quickly}, 15, 15},
		"apart, class, attempts": {false, middleware.RetryConfig{Backoff: quickly, PerClass: policy, Attempts: 1}, 9, 3},
		"of the hopeless":        {true, middleware.RetryConfig{Backoff: quickly, PerClass: map[classify.Class]middleware.Policy{classify.ClassPermanent: {Backoff: quickly}}}, 3, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second, time.Minute)}, nil)
			s.chained(row.together, newQueue(s, s.letters), newRetry(t, row.retry))
			n := newNote()
			s.handle("billing", "orders", func(msg *message.Message) error {
				n.add(msg)
				switch msg.UUID {
				case "transient":
					return classify.Transient(errBoom)
				case "unknown":
					return errBoom
				}
				return classify.Permanent(errBoom)
			})
			s.router.AddConsumerHandler("plain", "plain", s.broker.consumer(), func(msg *message.Message) error { n.add(msg); return errBoom })
			s.run()
			s.publish("orders", "transient", "unknown", "permanent")
			s.publish("plain", "nobody's")
			time.Sleep(time.Hour)
			s.stop()
			letters := s.letters.all()
			permanent := 1
			if _, said := row.retry.PerClass[classify.ClassPermanent]; said {
				permanent = 5
			}
			for id, want := range map[string]int{"transient": row.transient, "unknown": row.unknown, "permanent": permanent} {
				if got := len(n.of(id)); got != want || letters[id].Failure.Attempts != want {
					t.Errorf("%s: %s handled %d times, want %d; letter %+v", name, id, got, want, letters[id].Failure)
				}
			}
			want := row.retry.Attempts
			if want == 0 {
				want = 5
			}
			if len(n.of("nobody's")) != want || letters["nobody's"].Failure.Attempts != want { // its failures are the queue's
				t.Errorf("%s: without stages %d times, letter %+v", name, len(n.of("nobody's")), letters["nobody's"].Failure)
			}
		})
	}
}

// Features D14, O5: a message that goes to a stage is an Info line with its masked cause. In a stage texts are masked
// and the producer's metadata are not, because the handler needs them. In the letter both are.
func TestStagesMasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := &letters{kept: map[string]poison.Letter{}}
		mask, err := privacy.New(privacy.Rules{Mask: func(text string) string { return strings.ReplaceAll(text, "4711", "****") }})
		testkit.NoError(t, err)
		queue := testkit.Must(poison.NewQueue(dead, poison.QueueConfig{
			Shared:       observe.Shared{Privacy: mask},
			MaskMetadata: func(string, string) string { return "hidden" },
		}))
		log := &lines{}
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Second)}, log, queue)
		s.chained(true, queue, newRetry(t, middleware.RetryConfig{}))
		n := newNote()
		s.handle("billing", "orders", func(msg *message.Message) error { n.add(msg); return errors.New("card 4711 refused") })
		s.passes(time.Minute, "1")
		letter := dead.all()["1"]
		if len(n.of("1")) != 2 || len(letter.Failure.History) != 2 || letter.Original.Metadata["tenant"] != "hidden" {
			t.Fatalf("handled %v, letter %+v", n.of("1"), letter)
		}
		again := n.of("1")[1].metadata
		if again["tenant"] != "acme" || again[poison.KeyFailureDescription] != "card **** refused" || strings.Contains(again[poison.KeyAttemptHistory], "4711") {
			t.Errorf("in the stage: %v", again)
		}
		if again[poison.KeyFailureStack] != "" || strings.Contains(letter.Failure.Description+letter.Failure.History[0].Error, "4711") {
			t.Errorf("letter %+v", letter.Failure)
		}
		notified := log.count("card **** refused") == 1 && log.count("message_id:1") == 1 && log.count("4711") == 0
		testkit.Check(t, notified, "%q", log.all())
	})
}
