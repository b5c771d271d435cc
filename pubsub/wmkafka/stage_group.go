package wmkafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/due"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
)

const (
	// stageFetchWait is how long a broker may wait with a fetch: heartbeats and commits use the same connection.
	stageFetchWait = 100 * time.Millisecond
	// stageFetchSize is how much is fetched of a partition at a time.
	stageFetchSize = 128 << 10
	// stageLook is how often the leader of the group looks whether its topics are still there.
	stageLook = 5 * time.Second
)

// stageClient is the configuration of the client of all stages, and its connections.
func (c *SubscriberConfig) stageClient() (*sarama.Config, *connections) {
	config, connections := through(c.client)
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		sarama.NewBalanceStrategyRoundRobin(), // of topics with one partition, most of them
		sarama.NewBalanceStrategyRange(),      // beside a Subscriber in the same group
	}
	config.Consumer.Offsets.AutoCommit.Enable = false // see stageSession.commit
	config.Consumer.Return.Errors = true
	config.Consumer.MaxWaitTime = stageFetchWait
	config.Consumer.Fetch.Default = stageFetchSize
	config.Metadata.RefreshFrequency = stageLook
	config.Metadata.Full = false // or each look is at all topics of the cluster
	return config, connections
}

// stageGroup is one member of a consumer group, for any number of stage topics. It connects for the first topic, joins
// anew when they change, and disconnects after the last.
type stageGroup struct {
	member
	denials denials

	mu          sync.Mutex
	topics      map[string]*stageTopic
	gone        []*stageTopic      // that were removed, and whose end is to be said
	version     int                // of topics
	interrupt   context.CancelFunc // of the membership
	ended       chan struct{}      // closed when the membership has ended; nil before the first
	cut         func()
	unavailable time.Time // since when the group cannot be joined, or zero
	lost        time.Time // when the last session ended, if its end was not our own wish
}

// stageTopic is a stage topic that is consumed.
type stageTopic struct {
	name  string
	stage *due.Stage
	ctx   context.Context       // of Subscribe
	out   chan *message.Message // closed at the end
}

var errTwice = errors.New("the topic is consumed already: a stage topic has one handler")

// add consumes a topic until its context ends. Then what is acked is committed, and the channel is closed. If there is
// no topic yet, it connects.
func (g *stageGroup) add(t *stageTopic) error {
	for {
		ended, err := g.tryAdd(t)
		if err != nil {
			return err
		}
		if ended == nil {
			break
		}
		<-ended // the membership before it
	}
	context.AfterFunc(t.ctx, func() { g.remove(t) })
	return nil
}

// tryAdd returns a channel to wait for if a membership is about to end.
func (g *stageGroup) tryAdd(t *stageTopic) (ended <-chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.topics[t.name] != nil {
		return nil, errTwice
	}
	if len(g.topics) > 0 {
		g.topics[t.name] = t
		g.change()
		return nil, nil
	}
	if g.ended != nil {
		select {
		case <-g.ended:
		default:
			return g.ended, nil
		}
	}
	config, connections := g.config.stageClient()
	client, err := sarama.NewClient(g.brokers, config)
	if err != nil {
		return nil, err
	}
	if err := client.RefreshMetadata(t.name); errors.Is(err, sarama.ErrOutOfBrokers) { // what else is wrong may pass
		return nil, errors.Join(err, client.Close())
	}
	group, err := sarama.NewConsumerGroupFromClient(g.group, client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	g.ended, g.cut = make(chan struct{}), connections.cut
	g.topics[t.name] = t
	go g.consume(group, client, g.ended)
	go func() {
		for err := range group.Errors() {
			if of := (*sarama.ConsumerError)(nil); errors.As(err, &of) && of.Topic != "" {
				g.denials.note(g.config.Logger, of.Topic, of.Err)
			}
		}
	}()
	return nil, nil
}

func (g *stageGroup) remove(t *stageTopic) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.topics[t.name] == t {
		delete(g.topics, t.name)
		g.gone = append(g.gone, t)
		g.change()
	}
}

// change makes the membership begin again with the present topics. The caller holds mu.
func (g *stageGroup) change() {
	g.version++
	if g.interrupt != nil {
		g.interrupt()
	}
}

// end waits until a topic has ended whose context has ended. If the brokers do not answer for long, the connections are
// cut, unless other topics need them.
func (g *stageGroup) end(t *stageTopic) {
	timer := time.NewTimer(graceful.TimeoutOf(t.ctx) + g.config.settleGrace + lastWords)
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
	logging.SubscriptionCut.Write(g.config.Logger, errStagesCut, nil)
	if last {
		cut()
		<-t.out
	}
}

var errStagesCut = errors.New("the consumer group of the stages has not ended in time: without other topics, its " +
	"connections are cut")

const (
	// stageQuiet is how long the set of topics must not have changed before the group is joined: each change is a
	// rebalance, and a router's handlers subscribe one after the other.
	stageQuiet    = 100 * time.Millisecond
	minStagePause = 100 * time.Millisecond
	maxStagePause = 5 * time.Second
)

var errNoStageTopic = errors.New("no stage topic exists that this client may read; create them")

// consume is a member until there are no topics.
func (g *stageGroup) consume(group sarama.ConsumerGroup, client sarama.Client, ended chan<- struct{}) {
	defer func() {
		_ = group.Close()
		_ = client.Close()
		g.mu.Lock()
		g.sayGone()
		g.mu.Unlock()
		close(ended)
	}()
	for pause := minStagePause; ; {
		ctx, topics := g.next()
		if len(topics) == 0 {
			return
		}
		began, err := time.Now(), errNoStageTopic
		there, missing := g.existing(client, topics)
		if len(there) > 0 {
			session := &stageSession{of: g, group: group, client: client, topics: topics, missing: missing, wanted: ctx}
			err = group.Consume(ctx, there, session)
		}
		if time.Since(began) > maxStagePause {
			pause = minStagePause
		}
		if err != nil && ctx.Err() == nil {
			g.fails(err)
			timing.Wait(ctx, pause)
			pause = min(2*pause, maxStagePause)
		}
	}
}

// next returns the topics when they have not changed for a while, or none at the end, and what ends when they change.
func (g *stageGroup) next() (ctx context.Context, topics map[string]*stageTopic) {
	for version := -1; ; time.Sleep(stageQuiet) {
		g.mu.Lock()
		if len(g.topics) == 0 || g.version == version {
			ctx, g.interrupt = context.WithCancel(context.Background())
			topics = maps.Clone(g.topics)
			if len(topics) > 0 {
				g.sayGone()
			}
			g.mu.Unlock()
			return ctx, topics
		}
		version = g.version
		g.mu.Unlock()
	}
}

// sayGone closes the channels of topics that were removed, whose messages are settled. The caller holds mu.
func (g *stageGroup) sayGone() {
	for _, t := range g.gone {
		close(t.out)
	}
	g.gone = nil
}

// existing divides topics into those that are there, and those that are not, or that the broker denies. A member of one of
// these could not join.
func (g *stageGroup) existing(client sarama.Client, topics map[string]*stageTopic) (there, missing []string) {
	there = slices.Sorted(maps.Keys(topics))
	if client.RefreshMetadata(there...) == nil {
		return there, nil
	}
	there = slices.DeleteFunc(there, func(name string) bool {
		err := client.RefreshMetadata(name)
		g.denials.note(g.config.Logger, name, err)
		gone := errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, sarama.ErrTopicAuthorizationFailed)
		if gone {
			missing = append(missing, name)
		}
		return gone
	})
	return there, missing
}

// fails notes that the group cannot be joined. An outage has one line when it begins.
func (g *stageGroup) fails(err error) {
	if g.unavailable.IsZero() {
		g.unavailable = time.Now()
		eventStagesNotJoined.Write(g.config.Logger, err, logging.Fields{"group": g.group})
	}
}

// joined notes that a session has begun, and writes a line if messages had to wait for it.
func (g *stageGroup) joined() {
	switch fields := (logging.Fields{"group": g.group}); {
	case !g.unavailable.IsZero():
		fields["lasted"] = time.Since(g.unavailable).Round(time.Millisecond)
		eventStagesJoined.Write(g.config.Logger, nil, fields)
	case !g.lost.IsZero():
		logging.SessionAgain.Write(g.config.Logger, nil, logging.Fields{
			logging.ConsumerGroup: g.group, "lasted": time.Since(g.lost).Round(time.Millisecond),
		})
	}
	g.unavailable, g.lost = time.Time{}, time.Time{}
}

// stageSession is what the member does in one generation of the group.
type stageSession struct {
	of      *stageGroup
	group   sarama.ConsumerGroup // whose partitions are paused
	client  sarama.Client
	topics  map[string]*stageTopic
	missing []string        // topics that do not exist, or are denied
	wanted  context.Context // ends when the topics change

	tenure *tenure
	keeps  sync.WaitGroup

	mu    sync.Mutex
	parts []*part
}

// Setup begins the session.
func (s *stageSession) Setup(session sarama.ConsumerGroupSession) error {
	most := time.Duration(0)
	for _, t := range s.topics {
		most = max(most, graceful.TimeoutOf(t.ctx))
	}
	s.tenure = s.of.begin(session, most)
	s.of.joined()
	s.keeps.Go(s.keep)
	return nil
}

// keep commits until the session ends. It makes the member join again when a missing topic is there.
func (s *stageSession) keep() {
	for timing.Wait(s.tenure.session.Context(), time.Second) {
		s.commit()
		for _, topic := range s.missing {
			if s.client.RefreshMetadata(topic) == nil {
				s.of.mu.Lock()
				s.of.change()
				s.of.mu.Unlock()
				return
			}
		}
	}
	if s.wanted.Err() == nil {
		s.of.lost = time.Now()
	}
}

// ConsumeClaim consumes a partition until the session ends, and lets its handlers finish.
func (s *stageSession) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	defer func() {
		for range claim.Messages() { // closed with the session
		}
	}()
	t, taking := s.topics[claim.Topic()], session.Context()
	ctx, cancel := context.WithCancel(worksUntil(t.ctx, taking))
	defer cancel()
	defer context.AfterFunc(s.tenure.work, cancel)()
	p := &part{config: s.of.config, denials: &s.of.denials, group: s.of.group, members: s.group, topic: t, partition: claim.Partition(),
		taking: taking, ctx: ctx, next: claim.InitialOffset(), committed: claim.InitialOffset(), wake: make(chan struct{}, 1)}
	s.mu.Lock()
	s.parts = append(s.parts, p)
	s.mu.Unlock()
	s.group.Resume(map[string][]int32{t.name: {p.partition}}) // sarama keeps it paused that was so before a rebalance
	p.consume(claim.Messages())
	p.finish(s.tenure.work)
	return nil
}

// Cleanup ends the session: all that is acked is committed.
func (s *stageSession) Cleanup(sarama.ConsumerGroupSession) error {
	s.tenure.cut()
	s.keeps.Wait()
	s.commit()
	return nil
}

// commit commits the offsets that have changed, to be kept for long: stage topics keep all that they ever had, and would
// give it out again if their group was without members for seven days. Sarama's own commits cannot say so.
func (s *stageSession) commit() {
	session := s.tenure.session
	request := &sarama.OffsetCommitRequest{ConsumerGroup: s.of.group, ConsumerID: session.MemberID(),
		ConsumerGroupGeneration: session.GenerationID()}
	marks := map[*part]int64{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if mark := p.mark(); mark != p.committed {
			marks[p] = mark
			request.AddBlock(p.topic.name, p.partition, mark, 0, "")
		}
	}
	if len(marks) == 0 {
		return
	}
	if err := commitPinned(s.client, request); err != nil {
		_ = s.client.RefreshCoordinator(s.of.group) // its error is that of the next try
		eventStageNotMarked.Write(s.of.config.Logger, err, logging.Fields{"group": s.of.group})
		return
	}
	for p, mark := range marks {
		p.committed = mark
	}
}
