package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// evidence is what a campaign left behind, by the id of the message.
type evidence struct {
	effects map[string]int
	letters map[string][]letter
	outputs map[string]map[string]int // how often each output was published, by its id
	// left is how many messages the consumers had not settled.
	left int
}

// letter is what matters of a dead letter.
type letter struct {
	topic, reason, class, description string
	attempts                          int
	altered                           bool
}

func (c *campaign) gather(ctx context.Context, left int) (e *evidence, err error) {
	e = &evidence{letters: map[string][]letter{}, outputs: map[string]map[string]int{}, left: left}
	if e.effects, err = c.site.effects(ctx); err != nil {
		return nil, err
	}
	// Beside one another: on Kafka most of the time goes into joining a group and leaving it.
	var mu sync.Mutex
	var reading sync.WaitGroup
	failed := make(chan error, 3)
	read := func(topic string, take func(*message.Message)) {
		reading.Go(func() {
			failed <- c.site.read(ctx, topic, func(msg *message.Message) {
				mu.Lock()
				defer mu.Unlock()
				take(msg)
			})
		})
	}
	for _, topic := range c.site.deadLetters() {
		read(topic, func(msg *message.Message) { e.add(topic, msg) })
	}
	read(c.site.outputs(), func(msg *message.Message) {
		id := string(msg.Payload)
		if e.outputs[id] == nil {
			e.outputs[id] = map[string]int{}
		}
		e.outputs[id][msg.UUID]++
	})
	reading.Wait()
	return e, errors.Join(<-failed, <-failed, <-failed)
}

func (e *evidence) add(topic string, msg *message.Message) {
	l, err := poison.Decode(msg)
	if err != nil {
		l.Failure.Reason = err.Error()
	}
	original := msg
	if l.Original != nil {
		original = l.Original
	}
	name := nameOf(original)
	e.letters[name] = append(e.letters[name], letter{
		topic: topic, reason: l.Failure.Reason, class: l.Failure.Class.String(), description: l.Failure.Description,
		attempts: l.Failure.Attempts, altered: checksum(original.Payload) != original.Metadata.Get(sumKey),
	})
}

// read gives all messages of a topic to take, in a group of the driver's own.
func (s *site) read(ctx context.Context, topic string, take func(*message.Message)) (err error) {
	sub, err := s.subscriber(s.reader(topic), 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sub.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages, err := sub.Subscribe(ctx, topic)
	if err != nil {
		return err
	}
	for last := time.Now(); ; {
		select {
		case msg, ok := <-messages:
			if !ok {
				return fmt.Errorf("the subscription of %s ended: %w", topic, ctx.Err())
			}
			take(msg)
			msg.Ack()
			last = time.Now()
		case <-time.After(300 * time.Millisecond):
			n, err := sub.Backlog(ctx, topic)
			if err == nil && n == 0 {
				return nil
			}
			if time.Since(last) > patience {
				return fmt.Errorf("%d messages of %s cannot be read: %w", n, topic, err)
			}
		}
	}
}
