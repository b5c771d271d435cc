package wmkafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
)

// subscription is one call of Subscribe. Watermill-kafka's subscriber keeps the connection and the group for it; where
// that one would wrap its handler for tracing, the subscription puts its own in the handler's place.
type subscription struct {
	config  *SubscriberConfig
	brokers []string
	topic   string
	group   string
	leave   func()          // the group, as far as this process knows
	ending  context.Context // ends with the subscription
	cancel  context.CancelFunc
	output  chan *message.Message
	inner   *kafka.Subscriber
	ended   chan struct{}

	client      *sarama.Config
	connections *connections
	ordering    *sequence.Ordering // nil without an order of keys

	tenure *tenure // of the latest session

	lost atomic.Int64 // when the last session ended, in nanoseconds; 0 before the first
}

func newSubscription(ctx context.Context, of *Subscriber, topic string) *subscription {
	s := &subscription{config: &of.config, brokers: of.brokers, topic: topic, group: of.group,
		output: make(chan *message.Message), ended: make(chan struct{})}
	s.client, s.connections = through(of.config.client)
	s.ending, s.cancel = context.WithCancel(ctx)
	return s
}

var _ kafka.SaramaTracer = (*subscription)(nil)

func (s *subscription) start(ctx context.Context, of *Subscriber) (<-chan *message.Message, error) {
	leave, err := enterGroup(of.brokers, s.group, false)
	if err != nil {
		return nil, err
	}
	s.leave = leave
	if err := of.mayRead(s.topic); err != nil {
		return nil, err
	}
	inner, err := kafka.NewSubscriber(of.watermill(s.client, s), s.config.Logger)
	if err != nil {
		return nil, err
	}
	s.inner = inner
	return inner.Subscribe(ctx, s.topic)
}

func (s *subscription) stop() {
	close(s.ended)
	s.cancel()
	if s.inner != nil {
		_ = s.inner.Close() // it has ended and returns no error; this ends what it left behind on reconnects
	}
	if s.leave != nil {
		s.leave()
	}
}

// cutLater cuts the connections of a subscription that has been told to end and has not in due time. drain is how long
// its handlers may finish.
func (s *subscription) cutLater(drain time.Duration) {
	timer := time.NewTimer(drain + s.config.settleGrace + lastWords)
	defer timer.Stop()
	select {
	case <-timer.C:
		logging.SubscriptionCut.Write(s.config.Logger, errCut, nil)
		s.connections.cut()
	case <-s.ended:
	}
}

// WrapConsumer is not called: there is always a group.
func (s *subscription) WrapConsumer(c sarama.Consumer) sarama.Consumer { return c }

// WrapPartitionConsumer is not called: there is always a group.
func (s *subscription) WrapPartitionConsumer(c sarama.PartitionConsumer) sarama.PartitionConsumer {
	return c
}

// WrapSyncProducer is not called: nothing is produced.
func (s *subscription) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer {
	return p
}

// groups are the consumer groups that this process is in, or is about to join. Members of Subscribers and of Stages
// cannot be in one group: the broker refuses those that come second, for as long as the others are there.
var groups = struct {
	sync.Mutex
	members map[groupName]int // subscriptions
}{members: make(map[groupName]int)}

type groupName struct {
	brokers, group string
	stages         bool
}

// enterGroup notes a subscription until leave is called. It refuses a group of the other kind.
func enterGroup(brokers []string, group string, stages bool) (leave func(), err error) {
	name := groupName{strings.Join(slices.Sorted(slices.Values(brokers)), ","), group, stages}
	other := name
	other.stages = !stages
	groups.Lock()
	defer groups.Unlock()
	if groups.members[other] > 0 {
		return nil, fmt.Errorf("the consumer group %q is used by a Subscriber and by Stages: they cannot share it; "+
			"give NewStages a group of its own", group)
	}
	groups.members[name]++
	return sync.OnceFunc(func() {
		groups.Lock()
		defer groups.Unlock()
		if groups.members[name]--; groups.members[name] == 0 {
			delete(groups.members, name)
		}
	}), nil
}
