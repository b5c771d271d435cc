package poison

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/bounded"
	"github.com/watermill-spillway/spillway/internal/contain"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// ErrTooLarge is what a publisher may wrap to say that a message was refused for its size.
var ErrTooLarge = errors.New("message too large")

// IsTooLarge tells whether a publisher's error is a refusal for size. It knows ErrTooLarge and the words of the clients
// in use: sarama says "larger than", Kafka's broker "too large".
func IsTooLarge(err error) bool {
	if errors.Is(err, ErrTooLarge) {
		return true
	}
	text := strings.ToLower(bounded.Error(err, 1<<10))
	return strings.Contains(text, "too large") || strings.Contains(text, "larger than")
}

// sinks lists where a letter may go, best first: its topic; for an invalid message the topic of all the others; then
// the fallbacks. A dead letter that is parked has no topic of all the others.
func (q *Queue) sinks(source Source, topic string, deadLetter bool) []Sink {
	sinks := []Sink{{q.config.Publisher, topic}}
	if source.Class == classify.ClassInvalid && !deadLetter {
		source.Class = classify.ClassPermanent
		if other := q.config.Naming.topic(source, q.config.Logger); other != topic {
			sinks = append(sinks, Sink{q.config.Publisher, other})
		}
	}
	for _, sink := range q.config.Fallbacks {
		if sink.Topic == "" {
			sink.Topic = topic
		}
		sinks = append(sinks, sink)
	}
	return sinks
}

// publish places the letter in the first sink that takes it and sets its Topic. The error joins what every sink said.
func (q *Queue) publish(ctx context.Context, l *Letter, source string, sinks []Sink, subscriber string) error {
	ready := q.makeReady(source, sinks)
	encoded := func(limits limits) *message.Message {
		msg := l.encode(limits)
		if q.config.WatermillKeys {
			l.addWatermill(msg, subscriber, limits)
		}
		// Values go along, for publishers that join a transaction; the end of the source's context does not, because some
		// pub/subs hand contexts on to the consumer.
		msg.SetContext(context.WithoutCancel(ctx))
		return msg
	}
	var refusals []error
	for i, sink := range sinks {
		err := q.publishTo(ctx, sink, *l, encoded)
		if err == nil {
			l.Topic = sink.Topic
			if !ready && i == 0 {
				q.ready.Store(sink.Topic, nil)
			}
			return nil
		}
		refusals = append(refusals, err)
		if errors.Is(ctx.Err(), context.Canceled) { // the message went away; after a mere deadline each sink has its try
			break
		}
	}
	return errors.Join(refusals...)
}

// publishTo tries one sink. A refusal for size is tried once more as it is, because a client may have sent the letter
// in one batch with a message that was too large, and from then on with the letter cut to the bone.
func (q *Queue) publishTo(ctx context.Context, sink Sink, l Letter, encoded func(limits) *message.Message) error {
	limits, sizeRefusals := q.limits, 0
	var waits backoff.BackOff
	for attempt := 1; ; attempt++ {
		msg := encoded(limits)
		err := contain.Call("publisher", func() error { return sink.Publisher.Publish(sink.Topic, msg) })
		if err == nil {
			return nil
		}
		err = fmt.Errorf("poison: publish to %q: %w", logged(sink.Topic), err)
		if hook := q.config.Hooks.OnPublishError; hook != nil {
			contain.Hook(q.config.Logger, "poison.OnPublishError", func() { hook(ctx, l, err) })
		}
		q.config.Logger.Error("A dead letter was refused", err, watermill.LogFields{"attempt": attempt, "topic": logged(sink.Topic)})
		if q.isTooLarge(err) {
			if sizeRefusals++; sizeRefusals == 2 {
				limits = limits.shrunk()
			}
			if sizeRefusals <= 2 {
				continue // size does not pass with time: no wait
			}
			return err
		}
		if waits == nil {
			waits = backoff.NewExponentialBackOff(
				backoff.WithInitialInterval(q.config.PublishBackoff), backoff.WithMultiplier(2),
				backoff.WithMaxInterval(max(time.Second, q.config.PublishBackoff)), backoff.WithMaxElapsedTime(0))
		}
		if attempt-sizeRefusals >= q.config.PublishAttempts || !wait.For(ctx, waits.NextBackOff()) {
			return err
		}
	}
}

func (q *Queue) isTooLarge(err error) (large bool) {
	if failed := contain.Call("poison.TooLarge", func() error { large = q.config.TooLarge(err); return nil }); failed != nil {
		q.config.Logger.Error("QueueConfig.TooLarge panicked; the refusal counts as one of another kind", failed, nil)
	}
	return large
}

// logged bounds a value that came with a message before it goes into a log line or an error.
func logged(value string) string { return bounded.Text(value, 200) }
