package wmamqp

import (
	"errors"
	"fmt"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
)

// channel is one of the publisher's, with confirms. One caller at a time has it, so that what is returned is of that
// caller's message.
type channel struct {
	*amqp091.Channel
	returns  chan amqp091.Return // room for that of the caller's message
	ends     chan *amqp091.Error
	frameMax int
}

func openChannel(conn *amqp091.Connection) (*channel, error) {
	opened, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("wmamqp: open a channel: %w", err)
	}
	c := &channel{Channel: opened, frameMax: conn.Config.FrameSize}
	c.ends = c.NotifyClose(make(chan *amqp091.Error, 1))
	c.returns = c.NotifyReturn(make(chan amqp091.Return, 1))
	if err := c.Confirm(false); err != nil {
		return nil, fmt.Errorf("wmamqp: switch confirms on: %w", errors.Join(err, c.Close()))
	}
	return c, nil
}

// publish sends the message and waits for what the broker says of it. A channel that is not healthy afterwards must not
// be used again: what it still has to say would be taken for an answer to the next message. After a nack it is not
// healthy either: RabbitMQ notes for a channel that a quorum queue is full, and goes on to refuse if the policy that
// bounds the queue goes.
func (c *channel) publish(to address, p *amqp091.Publishing, deadline <-chan struct{},
	timeout time.Duration) (err error, healthy bool) {
	confirmation, err := c.PublishWithDeferredConfirm(to.exchange, to.key, true, false, *p)
	if err != nil {
		return fmt.Errorf("wmamqp: send to %s: %w", to, err), false
	}
	select {
	case <-confirmation.Done():
	case <-deadline:
		return noConfirm(to, timeout), false
	}
	select {
	case r, open := <-c.returns: // a returned message is confirmed too, after its return
		if open {
			return &returnedError{to, r}, true
		}
	default:
	}
	switch {
	case confirmation.Acked():
		return nil, true
	case c.IsClosed():
		reason := c.reason()
		if answer := (*amqp091.Error)(nil); errors.As(reason, &answer) && answer.Code == amqp091.PreconditionFailed {
			return &messageRefused{to, answer}, false
		}
		return fmt.Errorf("wmamqp: %s: the channel was closed before the confirm; the message may have arrived: %w", to,
			reason), false
	default:
		return nacked(fmt.Sprintf("wmamqp: %s refused the message (nack): a full queue, or one that is not available",
				to)),
			false
	}
}

func noConfirm(to address, timeout time.Duration) error {
	return nacked(fmt.Sprintf("wmamqp: %s: no confirm within %s; the message may have arrived", to, timeout))
}

// nacked returns the error for a broker that nacks or is silent, which says nothing of the message.
func nacked(text string) error { return classify.Transient(outage.NewNack(text)) }

// reason is why the channel was closed. The client sends it before it ends what waits for a confirm.
func (c *channel) reason() error {
	if err := <-c.ends; err != nil {
		return err
	}
	return amqp091.ErrClosed
}

func (a address) String() string {
	if a.exchange == "" {
		return fmt.Sprintf("the default exchange with routing key %q", a.key)
	}
	return fmt.Sprintf("exchange %q with routing key %q", a.exchange, a.key)
}

var (
	errNoChannel = hold.NewUnavailable("wmamqp: no channel became free in time: the broker does not answer, or answers " +
		"slower than messages come")
)

// take gets one of the publisher's places. It is open, or nil and to be opened.
func (p *Publisher) take(deadline <-chan struct{}) (*channel, error) {
	select {
	case <-p.closing:
		return nil, ErrClosed
	default:
	}
	var c *channel
	select { // rather one that is open
	case c = <-p.free:
	default:
		select {
		case c = <-p.free:
		case <-p.unopened:
		case <-p.closing:
			return nil, ErrClosed
		case <-deadline:
			return nil, errNoChannel
		}
	}
	if c != nil && c.IsClosed() {
		c = nil
	}
	return c, nil
}

// ready opens the channel, where that is still to be done. The client waits for the broker's answers without a limit, so
// it does so off the path; the place is taken until it comes back.
func (p *Publisher) ready(c *channel, deadline <-chan struct{}) (*channel, error) {
	if c != nil {
		return c, nil
	}
	type result struct {
		c   *channel
		err error
	}
	results, gone := make(chan result), make(chan struct{})
	p.unavailable.Go(func() {
		conn, err := p.conn.open()
		var c *channel
		if err == nil {
			c, err = openChannel(conn)
		}
		if err != nil {
			p.unopened <- struct{}{}
		}
		select {
		case results <- result{c, err}:
		case <-gone:
			if err == nil {
				p.free <- c
			}
		}
	})
	select {
	case r := <-results:
		return r.c, r.err
	case <-deadline:
		close(gone)
		return nil, errNoChannel
	}
}

// discard gives the place of a channel back. Closing takes seconds where the peer does not answer, so it is off the
// path, and as the place comes back afterwards there are never more of these than places.
func (p *Publisher) discard(c *channel) {
	if c.IsClosed() {
		p.unopened <- struct{}{}
		return
	}
	p.unavailable.Go(func() {
		_ = c.Close()
		p.unopened <- struct{}{}
	})
}
