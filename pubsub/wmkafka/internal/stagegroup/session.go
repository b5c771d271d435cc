package stagegroup

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// session is what this member does in one generation of the group.
type session struct {
	group   *Group
	members sarama.ConsumerGroup // whose partitions are paused
	client  sarama.Client
	config  *Config
	version int // of the group's topics
	topics  map[string]*Topic
	missing []string // topics that did not exist when the session began
	of      sarama.ConsumerGroupSession
	ctx     context.Context
	cancel  context.CancelFunc

	keeping sync.WaitGroup
	flights sync.WaitGroup
	known   atomic.Int64 // when the coordinator was last asked that knew this member, in nanoseconds
	claims  map[string]*claim
}

// claim is a topic with the partitions of it that are this member's.
type claim struct {
	topic *Topic
	// taking ends with the session, with the topic's subscription, and when the topic is left to another. ctx is that
	// of messages: it ends when the session has let handlers finish.
	taking, ctx context.Context
	stop        func() // ends taking
	end         func() // ends both
	partitions  []int32
	left        atomic.Bool // to another, which has the topic

	mu    sync.Mutex
	parts map[int32]*part
}

func newSession(g *Group, members sarama.ConsumerGroup, client sarama.Client, version int, topics map[string]*Topic,
	missing []string) *session {
	s := &session{group: g, members: members, client: client, config: &g.config, version: version, topics: topics,
		missing: missing, claims: make(map[string]*claim)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// maxHold is how long a message may be held while something that its handler needs is unavailable. See wmkafka's
// subscriber.
const maxHold = 24 * time.Hour

// Setup begins the session: it takes over the topics, and says where their partitions begin.
func (s *session) Setup(of sarama.ConsumerGroupSession) error {
	s.of = of
	context.AfterFunc(of.Context(), s.cancel)
	s.known.Store(time.Now().UnixNano())
	for _, name := range slices.Sorted(maps.Keys(of.Claims())) {
		if t := s.topics[name]; t != nil {
			s.claims[name] = s.newClaim(t, of.Claims()[name])
		}
	}
	var taking sync.WaitGroup
	for _, c := range s.claims {
		taking.Go(func() { c.left.Store(!s.takeOver(c)) })
	}
	taking.Wait()
	s.keeping.Go(s.keep)
	s.joined()
	return nil
}

func (s *session) newClaim(t *Topic, partitions []int32) *claim {
	values := hold.WithMaxHold(context.WithoutCancel(t.ctx), maxHold)
	taking, stop := context.WithCancel(values)
	sessions := context.AfterFunc(s.ctx, stop)
	topics := context.AfterFunc(t.ctx, stop)
	ctx, cancel := context.WithCancel(graceful.Until(values, taking))
	return &claim{topic: t, partitions: partitions, taking: taking, ctx: ctx, stop: stop,
		end: func() { sessions(); topics(); stop(); cancel() }, parts: make(map[int32]*part)}
}

// ConsumeClaim consumes a partition until the session ends.
func (s *session) ConsumeClaim(_ sarama.ConsumerGroupSession, of sarama.ConsumerGroupClaim) error {
	defer func() {
		for range of.Messages() { // closed with the session
		}
	}()
	c := s.claims[of.Topic()]
	if c == nil || c.left.Load() {
		<-s.ctx.Done()
		return nil
	}
	p := &part{session: s, claim: c, partition: of.Partition(), next: of.InitialOffset(), committed: of.InitialOffset(),
		wake: make(chan struct{}, 1)}
	c.mu.Lock()
	c.parts[p.partition] = p
	c.mu.Unlock()
	p.consume(of.Messages())
	return nil
}

// Cleanup ends the session: it requeues what is not settled in time, and commits what is. Meanwhile sarama says that
// this member lives.
func (s *session) Cleanup(sarama.ConsumerGroupSession) error {
	s.cancel()
	for _, p := range s.parts() {
		p.mu.Lock() // nothing is launched after that
		//lint:ignore SA2001 what was launched before has been counted
		p.mu.Unlock()
	}
	landed := make(chan struct{})
	go func() { s.flights.Wait(); close(landed) }()
	s.finish(landed)
	for _, c := range s.claims {
		c.end()
	}
	grace := time.NewTimer(s.config.SettleGrace)
	defer grace.Stop()
	select {
	case <-landed:
	case <-grace.C:
	}
	s.keeping.Wait()
	if s.isMember() { // all, in case that an expelled member has committed less, before it joined again
		s.commit(true)
	}
	return nil
}

// parts are the partitions that are consumed.
func (s *session) parts() (parts []*part) {
	for _, c := range s.claims {
		c.mu.Lock()
		parts = slices.AppendSeq(parts, maps.Values(c.parts))
		c.mu.Unlock()
	}
	return parts
}

// joined notes that a session has begun, and writes a line if messages had to wait for it.
func (s *session) joined() {
	s.group.mu.Lock()
	unavailable, lost := s.group.unavailable, s.group.lost
	s.group.unavailable, s.group.lost = time.Time{}, time.Time{}
	s.group.mu.Unlock()
	switch fields := (logging.Fields{"group": s.config.Group}); {
	case !unavailable.IsZero():
		fields["lasted"] = time.Since(unavailable).Round(time.Millisecond)
		eventStagesJoined.Write(s.config.Logger, nil, fields)
	case !lost.IsZero():
		logging.SessionAgain.Write(s.config.Logger, nil, logging.Fields{
			logging.ConsumerGroup: s.config.Group, "lasted": time.Since(lost).Round(time.Millisecond),
		})
	}
	context.AfterFunc(s.of.Context(), func() {
		s.group.mu.Lock()
		defer s.group.mu.Unlock()
		if s.group.version == s.version {
			s.group.lost = time.Now()
		}
	})
}

// finish lets handlers finish while the group has this member: until all have landed, or their time is over. The other
// members wait.
func (s *session) finish(landed <-chan struct{}) {
	most := time.Duration(0)
	for _, c := range s.claims {
		most = max(most, c.topic.Drain())
	}
	over := time.NewTimer(min(most, s.config.Rebalance))
	defer over.Stop()
	for next := firstLook; ; next = time.Second {
		look := time.NewTimer(next)
		select {
		case <-landed:
			look.Stop()
			return
		case <-over.C:
			look.Stop()
			return
		case <-look.C:
			if !s.isMember() {
				return
			}
		}
	}
}

// firstLook is how long handlers may finish before the broker is asked whether this member is still one: most do.
const firstLook = 100 * time.Millisecond

// isMember asks whether the group still has this member in this generation: its partitions may be another's by now.
func (s *session) isMember() bool {
	asked := time.Now()
	coordinator, err := s.client.Coordinator(s.config.Group)
	if err != nil {
		return false
	}
	response, err := coordinator.Heartbeat(&sarama.HeartbeatRequest{
		GroupId: s.config.Group, MemberId: s.of.MemberID(), GenerationId: s.of.GenerationID()})
	if err != nil || response.Err != sarama.ErrNoError && !errors.Is(response.Err, sarama.ErrRebalanceInProgress) {
		return false
	}
	s.known.Store(asked.UnixNano())
	return true
}

// asleep is how long a member may go without being known, as it does in a pause of the process or of its connections,
// before it may have been expelled. The shortest session time-out that brokers allow is 6 s.
const asleep = 4 * time.Second

// isKnown reports whether the group had this member a short time ago.
func (s *session) isKnown(now time.Time) bool { return now.UnixNano()-s.known.Load() < int64(asleep) }
