package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// cluster is what a service runs on.
type cluster struct {
	name   string
	nodes  []*node
	rounds []round
	keyed  bool // messages have keys, so Ordered is possible
	tries  int  // of a message whose error is transient, if not the default

	databases databases
	origin    func(*message.Message) poison.Origin
	prepare   func(ctx context.Context, topic string) error
	publisher func() (message.Publisher, error)
	subscribe func(topic string) (message.Subscriber, error)
	// whole returns nil when clients that are not ours are served.
	whole   func(ctx context.Context, topic string) error
	closing []func() error
}

// inTime is what a confirm or a commit may take: the messages of an account wait for each other's.
const inTime = accounts * time.Second / 100 // at the usual rate

var errSlow = errors.New("the cluster answers slower than messages come")

// round is something that goes wrong, and its repair.
type round struct {
	name   string
	breaks func(ctx context.Context, topic string) error
	busy   bool // letters are redriven meanwhile, messages are parked, and people look
}

func (c *cluster) end() (err error) {
	for i := len(c.closing) - 1; i >= 0; i-- {
		err = errors.Join(err, c.closing[i]())
	}
	for _, n := range c.nodes {
		n.kill()
	}
	return err
}
