package poison

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/naming"
)

// Initializer is a publisher that makes sure, before the first message, that its topics exist. It creates them, if the
// broker allows that, with room for a letter and without expiry. It returns an error that names a topic that is
// missing. To create topics that suit the topic whose dead letters they take, for example with its number of
// partitions, it also has the method InitializeTopicsFor(source string, topics ...string) error, which is then called
// in place of InitializeTopics.
//
// A Queue finds an Initializer inside a decorator that embeds a message.Publisher, has it in an exported field, or has
// a method Unwrap that returns it. Any other decorator hides it, which is an error of NewQueue: see WithInitializer.
type Initializer interface {
	InitializeTopics(topics ...string) error
}

// WithInitializer returns a publisher that publishes with pub and makes topics with initializer. Use it for a decorator
// that hides the publisher inside, such as that of Watermill's metrics:
//
//	measured, err := metrics.DecoratePublisher(dead)
//	queue, err := poison.NewQueue(poison.WithInitializer(measured, dead), poison.QueueConfig{})
//
// Give TopicsExist as initializer if the topics are made otherwise.
func WithInitializer(pub message.Publisher, initializer Initializer) message.Publisher {
	return &withInitializer{pub, initializer}
}

type withInitializer struct {
	message.Publisher
	Initializer Initializer // exported, so that what else it can do is found
}

// InitializeTopicsFor calls the initializer.
func (p *withInitializer) InitializeTopicsFor(source string, topics ...string) error {
	if err := p.CheckInitializer(); err != nil {
		return err
	}
	if initializer, ok := p.Initializer.(destination.SourceInitializer); ok {
		return initializer.InitializeTopicsFor(source, topics...)
	}
	return p.Initializer.InitializeTopics(topics...)
}

// CheckInitializer returns an error if the publisher or the initializer is nil.
func (p *withInitializer) CheckInitializer() error {
	switch {
	case safecall.IsNil(p.Publisher):
		return errors.New("poison: WithInitializer: the publisher is nil")
	case safecall.IsNil(p.Initializer):
		return errors.New("poison: WithInitializer: the initializer is nil; give TopicsExist if the topics are made " +
			"otherwise")
	}
	return nil
}

// TopicsExist is an Initializer that does nothing: it assumes that the topics exist.
var TopicsExist Initializer = topicsExist{}

type topicsExist struct{}

func (topicsExist) InitializeTopics(...string) error { return nil }

// initialize makes sure that the dead-letter topics of source exist, with every publisher that is an Initializer. An
// error names the topic.
func (q *Queue) initialize(source naming.Source) error {
	var topics []string
	for _, class := range placed {
		source.Class = class
		if topic := q.config.Naming.DeadLetterTopic(source); !slices.Contains(topics, topic) {
			topics = append(topics, topic)
		}
	}
	return q.initializeTopics(source.Topic, topics...)
}

func (q *Queue) initializeTopics(source string, topics ...string) error {
	if err := destination.Initialize(q.publisher, source, topics...); err != nil {
		return fmt.Errorf("poison: dead-letter destination cannot be used: %w", err)
	}
	for _, sink := range q.config.Fallbacks {
		named := topics
		if sink.Topic != "" {
			named = []string{sink.Topic}
		}
		if err := destination.Initialize(sink.Publisher, source, named...); err != nil {
			return fmt.Errorf("poison: dead-letter destination cannot be used: %w", err)
		}
		q.notice.Log(q.config.Logger, sink.Publisher, "dead letters", named...)
	}
	q.notice.Log(q.config.Logger, q.publisher, "dead letters", topics...)
	for _, topic := range topics {
		q.ready.Store(topic, nil)
	}
	return nil
}

// placed are the classes of failures that become letters.
var placed = []classify.Class{classify.ClassPermanent, classify.ClassInvalid, classify.ClassTransient,
	classify.ClassUnknown}

// makeReady makes sure of topics that were not initialized before their first letter. A program that must not look for
// topics may still publish to them, so an error is no refusal, and the next letter tries again until one was taken.
func (q *Queue) makeReady(source string, sinks []Sink) (ready bool) {
	if _, ready := q.ready.Load(sinks[0].Topic); ready {
		return true
	}
	ready = true
	for _, sink := range sinks {
		err := safecall.Call("publisher", func() error {
			return destination.Initialize(sink.Publisher, source, sink.Topic)
		})
		if err != nil {
			ready = false
			eventLetterTopicMissing.Write(q.config.Logger, err,
				logging.Fields{logging.DeadLetterTopic: sink.Topic})
		}
	}
	if ready {
		q.ready.Store(sinks[0].Topic, nil)
	}
	return ready
}

// InitializeOnSubscribe is a router's subscriber decorator that makes sure, as each handler starts, that the
// dead-letter topics of its topic exist, so that a missing destination is an error of Router.Run. Of Watermill's own
// publishers, those of NATS with AutoProvision, Google Cloud and SQS look for the topic too. With any other publisher
// that is no Initializer, a missing topic shows when the first letter is refused; one Info line says so. The decorator
// does not know the handler's name: if the Naming uses the name, the topics are made before their first letter.
func (q *Queue) InitializeOnSubscribe(sub message.Subscriber) (message.Subscriber, error) {
	if safecall.IsNil(sub) {
		return nil, errors.New("poison: InitializeOnSubscribe: the subscriber is nil")
	}
	return &initializing{Subscriber: sub, queue: q}, nil
}

type initializing struct {
	message.Subscriber
	queue *Queue
}

func (s *initializing) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.queue.initializeFor(topic); err != nil {
		return nil, err
	}
	return s.Subscriber.Subscribe(ctx, topic)
}

// initializeFor prepares for what fails in a handler of topic: of a dead-letter topic, that is its parked topic.
func (q *Queue) initializeFor(topic string) error {
	if len(q.sinks(naming.Source{Topic: topic}, "", true)) == 0 {
		return q.circle(topic)
	}
	if q.config.Naming.IsDeadLetter(topic) {
		return q.initializeTopics(topic, q.config.Naming.ParkedTopic(topic))
	}
	if q.usesHandler() {
		return nil
	}
	return q.initialize(naming.Source{Topic: topic})
}

// usesHandler reports whether two handlers of one topic get different names.
func (q *Queue) usesHandler() bool {
	n := &q.config.Naming
	return strings.Contains(n.DeadLetter+n.Invalid, "{handler}")
}
