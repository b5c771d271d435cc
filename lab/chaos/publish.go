package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
)

const burst = 25 // messages

// publish publishes all in order, in bursts, and each until the broker has confirmed it: one whose confirmation was
// lost is there twice then, with the same id. A fault begins within a burst, so that it meets consumers that are at
// something.
func (c *campaign) publish(ctx context.Context) (err error) {
	pub, err := c.site.source()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pub.Close()) }()
	next := time.Now()
	for i, id := range c.plan.ids {
		for less := 0; ; {
			err := pub.Publish(c.site.Topic, c.message(id, less))
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if kindOf(id).name == oversized && errors.Is(err, classify.ErrTooLarge) {
				less += 256 // the largest that the publisher takes is the worst
				continue
			}
			wait(ctx, 200*time.Millisecond)
		}
		c.published.Add(1)
		if i%burst != burst-1 {
			continue
		}
		next = next.Add(burst * c.plan.pause)
		wait(ctx, time.Until(next))
		if behind := time.Since(next); behind > time.Second { // do not make up for an outage in one rush
			next = time.Now()
		}
	}
	return ctx.Err()
}

// besideKey is the metadata with which messages go into one partition.
const besideKey = "beside"

// message is that of an id, the same each time; one that is oversized lacks so many bytes of what is too much.
func (c *campaign) message(id string, less int) *message.Message {
	msg := message.NewMessage(id, []byte(id+" "+strings.Repeat("payload ", draw(c.plan.Seed, id, 60))))
	if kindOf(id).name == oversized {
		c.site.oversized(msg, less)
	}
	switch kindOf(id).name {
	case unnamed, rejected:
		msg.UUID = ""
		msg.Metadata.Set(nameKey, id)
	case neighbour:
		msg.Metadata.Set(besideKey, neighbour)
	}
	msg.Metadata.Set(sumKey, checksum(msg.Payload))
	msg.Metadata.Set("producer", "chaos")
	return msg
}
