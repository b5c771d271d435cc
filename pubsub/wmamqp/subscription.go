package wmamqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
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
	resuming  resuming
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
	for _, err := range errs {
		if err != nil {
			return err // one for all: they are of one connection
		}
	}
	return nil
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

// inner returns a subscriber of watermill-amqp to the queue on our connection, and what adapts its declarations.
func (s *Subscriber) inner(queue string, prefetch int,
	logger watermill.LoggerAdapter) (*amqp.Subscriber, *adapting, error) {
	major := 0
	conn, err := s.conn.open()
	if err == nil {
		major = majorVersion(conn.Properties)
	}
	config := s.config.AMQP
	if err := checkSource(queue, config.Queue.Arguments, major); err != nil {
		return nil, nil, err
	}
	if err := s.config.checkLimit(config.Queue.Arguments, major); err != nil {
		return nil, nil, err
	}
	config.Consume.Qos.PrefetchCount = prefetch
	config.Queue.GenerateName = func(string) string { return queue } // which may be another one each time
	var topology *adapting                                           // nil with a topology of the user's
	if stock, ok := config.TopologyBuilder.(*amqp.DefaultTopologyBuilder); ok {
		topology = &adapting{DefaultTopologyBuilder: stock, conn: conn, major: major, keyed: s.config.Key != nil}
		config.TopologyBuilder = topology
	}
	if topology == nil && s.config.Key != nil {
		config.TopologyBuilder = ordered{config.TopologyBuilder}
	}
	inner, err := amqp.NewSubscriberWithConnection(config, logger, s.conn.ConnectionWrapper)
	if err != nil {
		return nil, nil, fmt.Errorf("wmamqp: %w", err)
	}
	return inner, topology, nil
}

// adapting is watermill-amqp's topology, but that a queue which is there with other arguments is taken as it is: a
// dead-letter queue, for one, is a quorum queue whatever the live one is. The broker answers a declaration it refuses
// by closing the channel, so the other way is for the next call, which follows at once.
type adapting struct {
	*amqp.DefaultTopologyBuilder
	conn    *amqp091.Connection
	passive atomic.Bool
	keyed   bool          // see SubscriberConfig.Key
	major   int           // version of the broker, or 0
	found   amqp091.Table // what the queue has instead of the arguments that were asked for
}

// arguments are those of the queue, as far as they are known. Those of a topology of the user's are not.
func (a *adapting) arguments(given amqp091.Table) amqp091.Table {
	switch {
	case a == nil:
		return nil
	case a.found != nil:
		return a.found
	}
	return given
}

func (a *adapting) BuildTopology(c *amqp091.Channel, queue, exchange string, config amqp.Config,
	logger watermill.LoggerAdapter) error {
	if !a.passive.Load() {
		err := a.DefaultTopologyBuilder.BuildTopology(c, queue, exchange, config, logger)
		if refused(err, amqp091.PreconditionFailed) {
			name, _, _ := inequivalent(err)
			if name != "" && a.keyed { // the broker shows one difference, and there may be others
				return fmt.Errorf("wmamqp: SubscriberConfig.Key: queue %q has another %s than AMQP.Queue.Arguments say, so it may have "+
					"competing consumers or a delivery limit, and then it has no order: set the arguments that the queue was declared "+
					"with; if it has no %s, declare another queue: %w", queue, name, amqp091.SingleActiveConsumerArg, err)
			}
			wanted := amqp091.Table{}
			maps.Copy(wanted, config.Queue.Arguments)
			a.found, _ = learn(wanted, err, func(arguments amqp091.Table) error {
				return onChannel(a.conn, func(c *amqp091.Channel) error {
					q := config.Queue
					_, err := c.QueueDeclare(queue, q.Durable, q.AutoDelete, q.Exclusive, false, arguments)
					return err
				})
			})
			if err := checkSource(queue, a.found, a.major); err != nil {
				return err
			}
			a.passive.Store(true)
			return errAgain{err}
		}
		return err
	}
	_, err := c.QueueDeclarePassive(queue, config.Queue.Durable, config.Queue.AutoDelete, config.Queue.Exclusive, false,
		nil)
	if err != nil {
		if refused(err, amqp091.NotFound) {
			a.passive.Store(false)
			return errAgain{err}
		}
		return fmt.Errorf("wmamqp: queue %q: %w", queue, err)
	}
	if exchange == "" {
		return nil
	}
	if err := a.ExchangeDeclare(c, exchange, config); err != nil {
		return fmt.Errorf("wmamqp: declare exchange %q: %w", exchange, err)
	}
	key := config.QueueBind.GenerateRoutingKey(queue)
	if err := c.QueueBind(queue, key, exchange, config.QueueBind.NoWait, config.QueueBind.Arguments); err != nil {
		return fmt.Errorf("wmamqp: bind queue %q to exchange %q: %w", queue, exchange, err)
	}
	return nil
}

func refused(err error, code int) bool {
	var refusal *amqp091.Error
	return errors.As(err, &refusal) && refusal.Code == code
}

type errAgain struct{ error }

func (e errAgain) Unwrap() error { return e.error }

// declare declares the queue of topic, and repeats what an adapting topology has learned from.
func (s *Subscriber) declare(inner *amqp.Subscriber, topic string) error {
	for try := 1; ; try++ {
		err := s.conn.declares(func() error { return inner.SubscribeInitialize(topic) })
		if again := (errAgain{}); err == nil {
			return nil
		} else if !errors.As(err, &again) || try == 3 {
			return fmt.Errorf("wmamqp: subscribe to %q: %w", topic, err)
		}
	}
}
