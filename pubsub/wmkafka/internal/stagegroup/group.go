// Package stagegroup consumes the stage topics of a service as one member of one consumer group of sarama's, over one
// client. Waiting records stay records, until they are near the head of their partition and due:
//
//	group   (group.go)    is a member for as long as there are topics, and joins anew when they change
//	session (session.go)  is one generation of the group: it lets handlers finish, and knows whether it is still a member
//	part    (part.go)     is a partition: it hands over what is due, one goroutine for each message that is handled
//	offsets (offsets.go)  takes over topics, commits
//
// # Offsets
//
// Each topic's offsets are kept in a group of the topic's own, as if a subscriber consumed the topic alone in that
// group. So the tools that look at those groups see the truth, a service can change between both ways, and another name
// of the service's group repeats nothing, although stage topics keep all that they ever had. The group of the members
// only distributes partitions. Its members take over a topic when the topic's own group has no members: while an
// instance of the other way lives, the topic is that one's. If one comes later, the broker refuses our commits, and the
// topic is left to it.
//
// Such commits name no generation. A member that was expelled can commit an offset that is too low, so that messages
// are handled again. It commits no offset with an unacked message before it, so none is lost. All offsets are committed
// each minute and at the end of a session, so that such an offset does not stay. A member hands nothing over, and
// commits nothing, unless the group's coordinator knew it a short time ago: a process, or its connections, can stand
// still.
package stagegroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/due"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// strategy has a name that distinguishes these members from those of a Subscriber, whose offsets are elsewhere: the
// broker refuses those of the other kind that come second.
type strategy struct{ sarama.BalanceStrategy }

const strategyName = "spillway-stages"

// Name is that of the protocol of the group.
func (strategy) Name() string { return strategyName }

const (
	// fetchWait is how long a broker may wait with a fetch: heartbeats and commits use the same connection.
	fetchWait = 100 * time.Millisecond
	// fetchSize is how much is fetched of a partition at a time.
	fetchSize = 128 << 10
)

// configure changes the client's configuration.
func configure(config *sarama.Config) {
	config.Consumer.Group.Rebalance.Strategy = strategy{sarama.NewBalanceStrategyRoundRobin()}
	config.Consumer.Offsets.AutoCommit.Enable = false // the group has no offsets
	config.Consumer.Return.Errors = true
	config.Consumer.MaxWaitTime = fetchWait
	config.Consumer.Fetch.Default = fetchSize
}

// Group is one member of a consumer group, for any number of stage topics. It connects for the first topic, and
// disconnects after the last.
type Group struct {
	config Config

	mu          sync.Mutex
	topics      map[string]*Topic
	gone        []*Topic           // that were removed, and whose end is to be said
	version     int                // of topics
	changed     chan struct{}      // has room for one
	interrupt   context.CancelFunc // of the membership
	ended       chan struct{}      // closed when the membership has ended; nil before the first
	cut         func()
	unavailable time.Time // since when the group cannot be joined, or zero
	lost        time.Time // when the last session ended, if its end was not our own wish
}

// Topic is a stage topic that is consumed.
type Topic struct {
	// Name is the topic, and Group the consumer group that has its offsets.
	Name, Group string
	Stage       *due.Stage

	ctx      context.Context
	out      chan *message.Message // closed at the end
	notified atomic.Bool           // that another has the topic
}

// Drain is how long its handlers may finish when its subscription ends.
func (t *Topic) Drain() time.Duration { return graceful.TimeoutOf(t.ctx) }

// New returns a Group without topics.
func New(config Config) *Group {
	return &Group{config: config, topics: make(map[string]*Topic), changed: make(chan struct{}, 1)}
}

var errTwice = errors.New("the topic is consumed already: a stage topic has one handler")

// Add consumes a topic until ctx ends. Then what is acked is committed, and the channel is closed. If the Group has no
// topic yet, it connects.
func (g *Group) Add(ctx context.Context, t *Topic) (<-chan *message.Message, error) {
	t.ctx, t.out = ctx, make(chan *message.Message)
	for {
		ended, err := g.add(t)
		if err != nil {
			return nil, err
		}
		if ended == nil {
			break
		}
		<-ended // the membership before it
	}
	context.AfterFunc(ctx, func() { g.remove(t) })
	return t.out, nil
}

// add returns a channel to wait for if a membership is about to end.
func (g *Group) add(t *Topic) (ended <-chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.topics[t.Name] != nil {
		return nil, errTwice
	}
	if len(g.topics) == 0 {
		if g.ended != nil {
			select {
			case <-g.ended:
			default:
				return g.ended, nil
			}
		}
		client, cut, err := g.config.Connect(configure)
		if err != nil {
			return nil, err
		}
		if err := g.isOfStages(client); err != nil {
			return nil, errors.Join(err, client.Close())
		}
		group, err := sarama.NewConsumerGroupFromClient(g.config.Group, client)
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		g.ended, g.cut = make(chan struct{}), cut
		g.topics[t.Name] = t
		go g.run(group, client, g.ended)
		return nil, nil
	}
	g.topics[t.Name] = t
	g.change()
	return nil, nil
}

func (g *Group) remove(t *Topic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.topics[t.Name] == t {
		delete(g.topics, t.Name)
		g.gone = append(g.gone, t)
		g.change()
	}
}

// change makes the membership begin again with the present topics.
func (g *Group) change() {
	g.version++
	if g.interrupt != nil {
		g.interrupt()
	}
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// End waits until a topic has ended whose context has ended. If the brokers do not answer for long, the connections are
// cut, unless other topics need them.
func (g *Group) End(t *Topic, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-t.out:
		return
	case <-timer.C:
	}
	g.remove(t)
	g.mu.Lock()
	last, cut := len(g.topics) == 0, g.cut
	g.mu.Unlock()
	logging.SubscriptionCut.Write(g.config.Logger, errCut, nil)
	if last {
		cut()
		<-t.out
	}
}

var errCut = errors.New("the consumer group of the stages has not ended in time: without other topics, its " +
	"connections are cut")

const (
	// quiet is how long the set of topics must not have changed before the group is joined: each change is a rebalance,
	// and a router's handlers subscribe one after the other. It is waited for no longer than mostQuiet.
	quiet, mostQuiet = 100 * time.Millisecond, time.Second
	minPause         = 100 * time.Millisecond
	maxPause         = 5 * time.Second
)

// run is a member until there are no topics.
func (g *Group) run(group sarama.ConsumerGroup, client sarama.Client, ended chan<- struct{}) {
	defer close(ended)
	failing := make(chan struct{})
	go func() {
		defer close(failing)
		for err := range group.Errors() {
			g.fetchFailed(client, err)
		}
	}()
	defer func() {
		_ = group.Close()
		_ = client.Close()
		<-failing
		g.sayGone()
	}()
	for pause := minPause; ; {
		topics, version := g.settled()
		if len(topics) == 0 {
			return
		}
		topics, missing := existing(client, topics)
		ctx, cancel := context.WithCancel(context.Background())
		if !g.begin(version, cancel) {
			cancel()
			continue
		}
		began := time.Now()
		err := errNoTopic
		if len(topics) > 0 {
			member := newSession(g, group, client, version, topics, missing)
			err = group.Consume(ctx, slices.Sorted(maps.Keys(topics)), member)
			member.cancel()
		}
		interrupted := ctx.Err() != nil
		cancel()
		g.sayGone()
		if time.Since(began) > maxPause {
			pause = minPause
		}
		if err != nil && !interrupted {
			g.fails(err)
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-g.changed:
			}
			timer.Stop()
			pause = min(2*pause, maxPause)
		}
	}
}

// fetchFailed makes the member join again if a topic is gone. Other errors of fetches pass.
func (g *Group) fetchFailed(client sarama.Client, err error) {
	of := (*sarama.ConsumerError)(nil)
	if !errors.As(err, &of) || of.Topic == "" {
		return // of the group: fails has it
	}
	eventStageNotFetched.Write(g.config.Logger, of.Err,
		logging.Fields{logging.Topic: of.Topic, logging.Partition: of.Partition})
	if errors.Is(client.RefreshMetadata(of.Topic), sarama.ErrUnknownTopicOrPartition) {
		g.again()
	}
}

// again makes the member join again, with the topics that are there then.
func (g *Group) again() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.change()
}

var errNoTopic = errors.New("no stage topic exists; create them")

// settled returns the topics when they have not changed for a while, or none at the end.
func (g *Group) settled() (topics map[string]*Topic, version int) {
	for deadline := time.Now().Add(mostQuiet); ; {
		g.mu.Lock()
		topics, version = maps.Clone(g.topics), g.version
		g.mu.Unlock()
		if len(topics) == 0 {
			return nil, version
		}
		timer := time.NewTimer(quiet)
		select {
		case <-g.changed:
			timer.Stop()
			if time.Now().Before(deadline) {
				continue
			}
		case <-timer.C:
		}
		g.mu.Lock()
		same := g.version == version
		g.mu.Unlock()
		if same {
			return topics, version
		}
	}
}

// begin notes how the membership is interrupted, unless the topics have changed again. Topics that were removed before
// it have ended.
func (g *Group) begin(version int, interrupt context.CancelFunc) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.version != version {
		return false
	}
	g.closeGone()
	g.interrupt = interrupt
	return true
}

// sayGone closes the channels of topics that were removed, whose messages are settled.
func (g *Group) sayGone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closeGone()
}

func (g *Group) closeGone() {
	for _, t := range g.gone {
		close(t.out)
	}
	g.gone = nil
}

// existing divides topics into those that are there, and those that are not. A member of a topic that is missing could
// not join.
func existing(client sarama.Client, topics map[string]*Topic) (there map[string]*Topic, missing []string) {
	if client.RefreshMetadata(slices.Collect(maps.Keys(topics))...) == nil {
		return topics, nil
	}
	there = maps.Clone(topics)
	for name := range topics {
		if errors.Is(client.RefreshMetadata(name), sarama.ErrUnknownTopicOrPartition) {
			delete(there, name)
			missing = append(missing, name)
		}
	}
	return there, missing
}

// Config configures a Group.
type Config struct {
	// Group is the consumer group whose members share the topics.
	Group string
	// Connect returns a client, and a function that cuts its connections. change is for its configuration.
	Connect func(change func(*sarama.Config)) (sarama.Client, func(), error)
	// InFlight is how many records of a partition are handled at the same time.
	InFlight int
	// MaxPlacing is how many records of a partition are taken from the first unacked one on, if that is more than
	// InFlight. Without it, records that are placed elsewhere count as handled.
	MaxPlacing int
	// MaxPlacingBytes bounds the bytes of these records.
	MaxPlacingBytes int
	// NackBackoff is the wait before a nacked message is handed over again. It doubles, up to MaxNackBackoff.
	NackBackoff, MaxNackBackoff time.Duration
	// SettleGrace is how long handlers may take to ack after a session ended.
	SettleGrace time.Duration
	// Rebalance is how long a session that has ended may wait for handlers.
	Rebalance time.Duration
	// Pinned is how long brokers keep committed offsets.
	Pinned time.Duration
	// Read makes a message of a record.
	Read func(*sarama.ConsumerMessage) *message.Message
	// Context returns the context of a record's message in one delivery, and what ends it.
	Context func(of context.Context, record *sarama.ConsumerMessage, group string,
		delivery placing.Delivery) (context.Context, func())
	Logger watermill.LoggerAdapter
}

// isOfStages refuses a group in which members of another kind are, such as a Subscriber: the broker lets no stages in
// beside them.
func (g *Group) isOfStages(client sarama.Client) error {
	found, err := describe(client, g.config.Group)
	if err != nil || len(found.Members) == 0 || found.Protocol == "" || found.Protocol == strategyName {
		return nil // what cannot be asked now shows when the group is joined
	}
	return g.ofOthers()
}

func (g *Group) ofOthers() error {
	return fmt.Errorf("the consumer group %q has members that are no Stages, such as a Subscriber: stages cannot join it; "+
		"give NewStages a group of its own", g.config.Group)
}

// fails notes that the group cannot be joined. An outage has one line when it begins.
func (g *Group) fails(err error) {
	if errors.Is(err, sarama.ErrInconsistentGroupProtocol) {
		err = errors.Join(g.ofOthers(), err)
	}
	g.mu.Lock()
	begins := g.unavailable.IsZero()
	if begins {
		g.unavailable = time.Now()
	}
	g.mu.Unlock()
	if begins {
		eventStagesNotJoined.Write(g.config.Logger, err, logging.Fields{"group": g.config.Group})
	}
}

// Adapters for Kafka, RabbitMQ and SQL.
var (
	// outage: Check the brokers, and the client's right to join.
	eventStagesNotJoined = logging.ErrorEvent("stages_not_joined",
		"The consumer group of the stages cannot be joined; it is tried again until it can")
	// outage: nothing
	eventStagesJoined = logging.InfoEvent("stages_joined", "The consumer group of the stages is joined again")
	// once: End older instances, or read the error.
	eventStageNotTaken = logging.InfoEvent("stage_not_taken",
		"A stage topic cannot be consumed yet; it is tried again each second")
	// each: nothing, unless it lasts
	eventStageNotFetched = logging.InfoEvent("stage_not_fetched", "A stage topic cannot be read; it is tried again")
	// each: nothing, unless it lasts
	eventStageNotMarked = logging.InfoEvent("stage_not_marked",
		"Offsets of a stage topic cannot be committed; it is tried again each second")
)
