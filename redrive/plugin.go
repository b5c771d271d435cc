package redrive

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// Plugin adds to the router a handler for each dead-letter topic, named spillway_redrive_<topic>, that brings its
// letters back. The handlers are known as Spillway's own: a chain of the whole router lets their messages pass, so that
// what fails here is parked by the Handler and never becomes the dead letter of a dead letter. The places for what is not
// brought back are made sure of first, as Initialize does. The router closes sub. An error comes out of Router.Run.
func (h *Handler) Plugin(sub message.Subscriber, topics ...string) message.RouterPlugin {
	add := consume("spillway_redrive_", sub, topics, func(topic string, msg *message.Message) error {
		_, err := h.handle(msg.Context(), msg, topic)
		return err
	})
	return func(router *message.Router) error {
		if err := add(router); err != nil {
			return err
		}
		return h.Initialize(topics...)
	}
}

// Collect adds to the router a handler for each dead-letter topic, named spillway_store_<topic>, that moves its messages
// into the store: each is acked when it is durable there, and given back when it cannot be written. Like those of
// Handler.Plugin they are known as Spillway's own. The router closes sub. An error comes out of Router.Run.
func (s *Store) Collect(sub message.Subscriber, topics ...string) message.RouterPlugin {
	return consume("spillway_store_", sub, topics, func(topic string, msg *message.Message) error {
		err := s.Publish(topic, msg)
		if err != nil {
			wait.For(msg.Context(), publishBackoff) // some subscribers redeliver at once, and without end
		}
		return err
	})
}

func consume(prefix string, sub message.Subscriber, topics []string, handle func(string, *message.Message) error) message.RouterPlugin {
	return func(router *message.Router) error {
		if safecall.IsNil(sub) {
			return errors.New("redrive: the subscriber for dead-letter topics is nil")
		}
		if len(topics) == 0 {
			return errors.New("redrive: no dead-letter topics are named")
		}
		own, err := chain.Own(sub)
		if err != nil {
			return fmt.Errorf("redrive: wrap the subscriber: %w", err)
		}
		for _, topic := range topics {
			if topic == "" {
				return errors.New("redrive: a dead-letter topic has an empty name")
			}
			err := safecall.Call("add the handler of "+topic, func() error { // the router panics at a name given twice
				router.AddConsumerHandler(prefix+topic, topic, own, func(msg *message.Message) error { return orNack(topic, msg, handle) })
				return nil
			})
			if err != nil {
				return fmt.Errorf("redrive: %w", err)
			}
		}
		return nil
	}
}

// orNack nacks where a publisher or hook called runtime.Goexit: then nobody returns to the router.
func orNack(topic string, msg *message.Message, handle func(string, *message.Message) error) error {
	returned := false
	defer func() {
		if !returned {
			msg.Nack()
		}
	}()
	err := handle(topic, msg)
	returned = true
	return err
}
