// Package consume adds Spillway's own consumers of topics to a router.
package consume

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
)

// Plugin adds to the router a handler for each dead-letter topic, named after prefix and topic. A chain of the whole
// router knows these handlers as Spillway's own, and lets their messages pass. Errors begin with the owner's name.
func Plugin(owner, prefix string, sub message.Subscriber, topics []string,
	handle func(topic string, msg *message.Message) error) message.RouterPlugin {
	return func(router *message.Router) error {
		if err := add(router, prefix, sub, topics, handle); err != nil {
			return fmt.Errorf("%s: %w", owner, err)
		}
		return nil
	}
}

func add(router *message.Router, prefix string, sub message.Subscriber, topics []string,
	handle func(string, *message.Message) error) error {
	if safecall.IsNil(sub) {
		return errors.New("the subscriber for dead-letter topics is nil: give one that reads them")
	}
	if len(topics) == 0 {
		return errors.New("the list of dead-letter topics is empty: name at least one")
	}
	own, err := chain.Own(sub)
	if err != nil {
		return fmt.Errorf("wrap the subscriber: %w", err)
	}
	for _, topic := range topics {
		if topic == "" {
			return errors.New("a dead-letter topic has an empty name: name each topic")
		}
		err := safecall.Call("add the handler of "+topic, func() error { // the router panics at a name given twice
			router.AddConsumerHandler(prefix+topic, topic, own, func(msg *message.Message) error {
				return orNack(topic, msg, handle)
			})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// orNack nacks if a publisher or hook called runtime.Goexit: then the handler never returns to the router.
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
