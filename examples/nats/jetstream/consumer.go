package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	natsgo "github.com/nats-io/nats.go"
)

// durable is the name of the group's consumers. A stream has one of each name.
func durable(group string) string {
	return strings.NewReplacer(".", "-", " ", "-", "*", "-", ">", "-", "/", "-", `\`, "-").Replace(group)
}

// consumer is the group's consumer of a topic, as the server should have it.
func (s *Subscriber) consumer(topic string) *natsgo.ConsumerConfig {
	group := durable(s.config.Group)
	return &natsgo.ConsumerConfig{
		Durable:        group,
		DeliverGroup:   group,
		DeliverSubject: "_INBOX.deliver." + Name(topic) + "." + group,
		FilterSubject:  topic,
		AckPolicy:      natsgo.AckExplicitPolicy,
		AckWait:        s.config.AckWait,
		MaxAckPending:  s.config.MaxAckPending,
		MaxDeliver:     -1, // with a limit the server drops a message that was delivered so often
	}
}

// ensure makes the consumer if it is missing.
func (s *Subscriber) ensure(topic string) (*natsgo.ConsumerInfo, error) {
	want := s.consumer(topic)
	info, err := s.js.ConsumerInfo(Name(topic), want.Durable)
	if errors.Is(err, natsgo.ErrConsumerNotFound) {
		info, err = s.js.AddConsumer(Name(topic), want)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %q of topic %q: %w", want.Durable, topic, err)
	}
	return info, nil
}

// configure makes the consumer if it is missing, and brings its AckWait and MaxAckPending up to date.
func (s *Subscriber) configure(topic string) error {
	info, err := s.ensure(topic)
	if err != nil {
		return err
	}
	want := s.consumer(topic)
	if info.Config.AckWait == want.AckWait && info.Config.MaxAckPending == want.MaxAckPending {
		return nil
	}
	changed := info.Config
	changed.AckWait, changed.MaxAckPending = want.AckWait, want.MaxAckPending
	if _, err := s.js.UpdateConsumer(Name(topic), &changed); err != nil {
		return fmt.Errorf("change consumer %q of topic %q: %w", want.Durable, topic, err)
	}
	return nil
}

// watch makes the consumer again if it was deleted. The client does not notice that: it would wait for ever.
func (s *Subscriber) watch(ctx context.Context, topic string) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if _, err := s.ensure(topic); err != nil {
				s.logger.Error("The consumer may be missing", err, watermill.LogFields{"topic": topic})
			}
		}
	}
}
