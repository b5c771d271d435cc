package columns_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Feature R5, sentence K3: two instances, and stages longer than MaxIdleTime. No message is claimed while it waits, so
// each ends as one letter.
func TestRedisStagesDoNotMultiply(t *testing.T) {
	t.Parallel()
	const maxIdle = 2 * time.Second
	s := newRedisStory(t, newRedisServer(t).redisBroker)
	for range 2 {
		dead, later, outputs := s.publisher(t, s.options()), s.publisher(t, s.options()), s.publisher(t, s.options())
		t.Cleanup(func() { _ = errors.Join(dead.Close(), later.Close()) })
		config := spillway.Config{Publisher: dead, Logger: watermill.NopLogger{}}
		config.Retry.Attempts = 1
		config.Stages = &stages.Config{
			Stages: []stages.Stage{{Delay: 3 * time.Second}, {Delay: 5 * time.Second}}, Publisher: later,
			Subscriber: func(_, group string) (message.Subscriber, error) {
				return s.subscriber(t, group, maxIdle, s.options()), nil
			},
		}
		ch := testkit.Must(spillway.New(t.Context(), config))
		sub := s.subscriber(t, s.topic, maxIdle, s.options())
		testkit.RunRouter(t, watermill.NopLogger{}, func(router *message.Router) {
			ch.Attach(router)
			_, err := ch.Stages().AddHandler(router, "billing", s.topic, sub, s.topic+".out", outputs, func(*message.Message) ([]*message.Message, error) {
				return nil, classify.Transient(errors.New("not yet"))
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	ids := several("bad", 10)
	s.send(ids...)
	testkit.Eventually(t, "each is a letter", func() bool { return len(s.letters()) == len(ids) })
	time.Sleep(2 * maxIdle) // for what was claimed
	letters := s.letters()
	total := 0
	for n := range maps.Values(letters) {
		total += n
	}
	// One that stands still for longer than maxIdle loses its message to the other instance, as on a busy machine. What
	// multiplies does so with every message, in every stage.
	if total < len(ids) || total > len(ids)+len(ids)/4 {
		t.Errorf("%d messages became %d letters: %v", len(ids), total, letters)
	}
}
