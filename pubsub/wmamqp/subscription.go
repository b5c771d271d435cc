package wmamqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
)

// subscription is what came of one Subscribe: as many consumers of the queue as messages may be in flight.
type subscription struct {
	config    *SubscriberConfig
	queue     string
	out       chan *message.Message
	consumers []*consumer
	failing   atomic.Int64   // since when no consumer can begin again, in nanoseconds; 0 if one has
	taking    sync.WaitGroup // consumers that the broker may give another message
	ordering  *sequence.Ordering
	source    atomic.Pointer[source]

	priorities sync.Once   // the log has a line
	lost       atomic.Bool // a consumer, and the log has a line

	ctx   context.Context // ends with that of Subscribe, and with Close: no message is taken
	drain *graceful.Drain
}

// open begins to consume on a channel for each message that may be in flight. The first one has declared the queue when
// the others begin, which is at once: each is several round trips.
func (s *Subscriber) open(sub *subscription, topic string) error {
	channels := s.config.InFlight
	if s.config.Key != nil {
		channels = 1 // whose messages are in the order of the queue
	}
	sub.consumers = make([]*consumer, channels)
	errs := make([]error, channels)
	begin := func(i int) {
		if errs[i] = sub.ctx.Err(); errs[i] == nil {
			sub.consumers[i], errs[i] = s.consume(sub, topic, i == 0)
		}
	}
	var others sync.WaitGroup
	if begin(0); errs[0] == nil {
		for i := 1; i < len(errs); i++ {
			others.Go(func() { begin(i) })
		}
	}
	others.Wait()
	sub.consumers = slices.DeleteFunc(sub.consumers, func(c *consumer) bool { return c == nil })
	err := cmp.Or(errs...) // one for all: they are of one connection
	if errors.Is(err, amqp091.ErrChannelMax) {
		err = fmt.Errorf("wmamqp: subscribe to %q with SubscriberConfig.InFlight %d: the connection has no more channels, of which "+
			"each subscription takes as many: lower it, or use a subscriber of its own: %w", topic, s.config.InFlight, err)
	}
	return err
}

// consume begins to consume the queue on one more channel.
func (s *Subscriber) consume(sub *subscription, topic string, asks bool) (*consumer, error) {
	c := &consumer{sub: sub, of: s, topic: topic, asks: asks, prefetch: s.config.AMQP.Consume.Qos.PrefetchCount}
	if s.config.Key != nil {
		c.prefetch = maxAhead
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	sub.taking.Add(1)
	return c, nil
}

// run passes messages on until the subscription ends, and lets go of the broker. conn is nil if it has ended.
func (s *subscription) run(conn *connection) {
	var passing, ending sync.WaitGroup
	passing.Add(len(s.consumers))
	for _, c := range s.consumers {
		ending.Go(func() {
			defer c.takesNoMore()
			defer c.end()
			defer c.placed.Wait() // for settleGrace at most, after the drain
			defer passing.Done()
			if s.config.Key != nil {
				c.runInLanes()
				return
			}
			c.run()
		})
	}
	watching, stop := context.WithCancel(s.ctx)
	if conn != nil {
		ending.Go(func() { s.watch(watching, conn) })
	}
	passing.Wait()
	close(s.out)
	stop()
	s.drain.Stop()
	ending.Wait()
	s.drain.End()
}

// siblingsWait is how long a consumer that gives a message back waits for those that could be given it.
const siblingsWait = time.Second

// noneTakes waits until no consumer of this subscription can be given another message: what one requeues would come to
// the next, and the broker counts.
func (s *subscription) noneTakes() {
	none := make(chan struct{})
	go func() { s.taking.Wait(); close(none) }()
	patience := time.NewTimer(siblingsWait)
	defer patience.Stop()
	select {
	case <-none:
	case <-patience.C:
	}
}

// declare declares the queue of a subscription, and returns its arguments, as far as they are known: those of a topology
// of the user's are not.
func (s *Subscriber) declare(topic, queue string) (arguments amqp091.Table, err error) {
	err = s.conn.declares(func(conn *amqp091.Connection) (err error) {
		arguments, err = s.declareOn(conn, topic, queue)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("wmamqp: subscribe to %q: %w", topic, err)
	}
	return arguments, nil
}

// declareOn takes a queue that is there with other arguments as it is: a dead-letter queue, for one, is a quorum queue
// whatever the live one is.
func (s *Subscriber) declareOn(conn *amqp091.Connection, topic, queue string) (amqp091.Table, error) {
	config, exchange, major := s.config.AMQP, s.config.AMQP.Exchange.GenerateName(topic), majorVersion(conn.Properties)
	given, keyed := config.Queue.Arguments, s.config.Key != nil
	if err := checkSource(queue, given, major); err != nil {
		return nil, err
	}
	if err := s.config.checkLimit(given, major); err != nil {
		return nil, err
	}
	declare := func(c *amqp091.Channel, arguments amqp091.Table) error {
		q := config.Queue
		_, err := c.QueueDeclare(queue, q.Durable, q.AutoDelete, q.Exclusive, false, arguments)
		return err
	}
	_, stock := config.TopologyBuilder.(*amqp.DefaultTopologyBuilder)
	err := onChannel(conn, func(c *amqp091.Channel) error {
		err := config.TopologyBuilder.BuildTopology(c, queue, exchange, config, s.config.Logger)
		if err != nil || stock || !keyed {
			return err
		}
		if err = declare(c, given); err != nil {
			err = fmt.Errorf("wmamqp: SubscriberConfig.Key: AMQP.TopologyBuilder has declared queue %q otherwise than AMQP.Queue "+
				"says, so it may have no order: make them alike: %w", queue, err)
		}
		return err
	})
	switch {
	case !stock:
		return nil, err
	case !refused(err, amqp091.PreconditionFailed):
		return given, err
	}
	if name, _, _ := inequivalent(err); name != "" && keyed { // the broker shows one difference, and there may be others
		return nil, fmt.Errorf("wmamqp: SubscriberConfig.Key: queue %q has another %s than AMQP.Queue.Arguments say, so it may have "+
			"competing consumers or a delivery limit, and then it has no order: set the arguments that the queue was declared "+
			"with; if it has no %s, declare another queue: %w", queue, name, amqp091.SingleActiveConsumerArg, err)
	}
	wanted := amqp091.Table{}
	maps.Copy(wanted, given)
	found, _ := learn(wanted, err, func(arguments amqp091.Table) error {
		return onChannel(conn, func(c *amqp091.Channel) error { return declare(c, arguments) })
	})
	if err := checkSource(queue, found, major); err != nil {
		return nil, err
	}
	return found, onChannel(conn, func(c *amqp091.Channel) error {
		q := config.Queue
		if _, err := c.QueueDeclarePassive(queue, q.Durable, q.AutoDelete, q.Exclusive, false, nil); err != nil {
			return fmt.Errorf("wmamqp: queue %q: %w", queue, err)
		}
		return bind(c, &config, exchange, queue, config.QueueBind.GenerateRoutingKey(queue))
	})
}

func refused(err error, code int) bool {
	var refusal *amqp091.Error
	return errors.As(err, &refusal) && refusal.Code == code
}
