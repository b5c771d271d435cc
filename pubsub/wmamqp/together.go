package wmamqp

import (
	"context"
	"errors"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/sqlstore/batcher"
)

// What goes together on one channel.
const (
	togetherMessages = 64
	togetherBytes    = 1 << 20
)

// outgoing is a message on its way.
type outgoing struct {
	to         address
	publishing *amqp091.Publishing
}

// newTogether batches messages that find no channel free.
func (p *Publisher) newTogether() *batcher.Batcher[outgoing] {
	return batcher.New(batcher.Config[outgoing]{
		Rows: togetherMessages, Bytes: togetherBytes, Lanes: p.config.channels, Timeout: p.config.ConfirmTimeout,
		Together: p.publishTogether,
	})
}

// publishTogether publishes messages on one channel, and waits for their confirms together. It leaves out what the
// broker refused or returned: published alone, each has its own error. After an error all of them are published alone.
func (p *Publisher) publishTogether(ctx context.Context, messages []outgoing) (leftOut []int, err error) {
	c, err := p.take(ctx.Done())
	if err != nil {
		return nil, err
	}
	confirms := make([]*amqp091.DeferredConfirmation, len(messages))
	healthy := false
	defer func() {
		switch {
		case healthy:
			p.slots <- c
		case c != nil:
			p.discard(c)
		}
	}()
	for _, m := range messages { // before any is sent: a channel that ready gives back must have nothing to say
		if c, err = p.ready(c, m.to.exchange, ctx.Done()); err != nil {
			c = nil
			return nil, err
		}
	}
	for i, m := range messages {
		if checkSize(m.publishing, c.frameMax) != nil {
			continue
		}
		if confirms[i], err = c.PublishWithDeferredConfirm(m.to.exchange, m.to.key, true, false,
			*m.publishing); err != nil {
			return nil, err
		}
	}
	for _, confirm := range confirms {
		if confirm == nil {
			continue
		}
		select {
		case <-confirm.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if c.IsClosed() {
		return nil, errClosedTogether
	}
	healthy = true
	returned := c.returned()
	for i, confirm := range confirms {
		if confirm != nil && !confirm.Acked() { // see channel.publish
			healthy = false
		}
		if confirm == nil || !confirm.Acked() || returned[messages[i].name()] {
			leftOut = append(leftOut, i)
		}
	}
	return leftOut, nil
}

var errClosedTogether = errors.New("wmamqp: the channel was closed before the confirms")

// name is what a message that is returned is known by. Others may have the same.
type name struct {
	address
	id string
}

func (o outgoing) name() name { return name{o.to, o.publishing.MessageId} }

// returned returns the names of messages that came back. A message is returned before it is confirmed.
func (c *channel) returned() (names map[name]bool) {
	for {
		select {
		case r, open := <-c.returns:
			if !open {
				return names
			}
			if names == nil {
				names = make(map[name]bool)
			}
			names[name{address{r.Exchange, r.RoutingKey}, r.MessageId}] = true
		default:
			return names
		}
	}
}
