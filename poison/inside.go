package poison

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/seal"
)

// Inside is for the other packages of Spillway.
func (q *Queue) Inside() deadletter.Inside { return inside{q} }

// Inside returns what the other packages of Spillway call of this one, and its users do not. Nothing is promised of it.
func Inside() deadletter.Letters { return letters{} }

type letters struct{}

func (letters) IsLetter(msg *message.Message) bool { return isLetter(msg) }

func (letters) ProducerMetadata(metadata message.Metadata) message.Metadata {
	return producerMetadata(metadata)
}

func (letters) Publish(pub message.Publisher, topic string, messages ...*message.Message) error {
	return offer(pub, topic, messages...)
}

func (letters) StageOf(msg *message.Message) deadletter.Stage { return stageOf(msg) }

func (letters) Seal(ctx context.Context, s *seal.Sealer, msg *message.Message) (*message.Message, bool, error) {
	return sealMessage(ctx, s, msg)
}

// inside is what the other parts of Spillway need of a queue: see deadletter.Inside.
type inside struct{ queue *Queue }

func (i inside) IsDeadLetterTopic(topic string) bool {
	return i.queue.config.Naming.Inside().IsDeadLetter(topic)
}

func (i inside) Initialize(topic, handler string) error {
	return i.queue.initialize(naming.Source{Topic: topic, Handler: handler})
}

func (i inside) CheckPublisher(pub message.Publisher) error {
	for n, sink := range append([]Sink{{Publisher: i.queue.publisher}}, i.queue.config.Fallbacks...) {
		if decorated.ClosedTogether(pub, sink.Publisher) {
			name := "the publisher of dead letters"
			if n > 0 {
				name = fmt.Sprintf("QueueConfig.Fallbacks[%d].Publisher", n-1)
			}
			return fmt.Errorf("poison: %s (%T) is a handler's publisher too, which the router closes when that handler stops: "+
				"give the dead letters a publisher of their own", name, sink.Publisher)
		}
	}
	return nil
}

func (i inside) Classifier() *classify.Classifier { return i.queue.config.Classifier }

func (i inside) FromStage(msg *message.Message) { unpackInto(msg) }

func (i inside) Cause(err error) error { return i.queue.causeOf(err) }

func (i inside) Error(err error) error { return i.queue.config.Privacy.Error(err) }

func (i inside) Shown(v classify.Verdict) classify.Verdict {
	v.Reason, v.Description = i.queue.config.Privacy.Text(v.Reason), i.queue.config.Privacy.Text(v.Description)
	return v
}

func (i inside) ForStage(original *message.Message, failure *classify.Failure, number int, due,
	holdUntil time.Time) *message.Message {
	ctx := original.Context()
	source := naming.Source{Topic: message.SubscribeTopicFromCtx(ctx), Handler: message.HandlerNameFromCtx(ctx),
		Class: failure.Verdict.Class}
	l := i.queue.letter(original, failure, source, false)
	l.stage = deadletter.Stage{Number: number, DueAt: due, HoldUntil: holdUntil}
	// what reads as exhausted by default is not yet
	l.Failure.Reason = i.queue.config.Privacy.Text(failure.Verdict.Reason)
	msg := l.encode(limits{total: i.queue.limits.total, description: 256, history: i.queue.limits.history})
	msg.SetContext(chain.Returning(context.WithoutCancel(ctx)))
	return msg
}
