package stagegroup

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// membership is one generation of the group for sarama, which gives it no partition.
type membership struct {
	group   *Group
	client  sarama.Client
	version int // of the group's topics
	topics  map[string]*Topic
	missing []string
	session *session
}

// Setup begins the session.
func (m *membership) Setup(s sarama.ConsumerGroupSession) error {
	partitions, err := m.group.assigned(m.client, s.MemberID())
	if err != nil {
		return err
	}
	m.session = newSession(s, m, partitions)
	m.session.start()
	m.joined(s.Context())
	return nil
}

// Cleanup ends it. Meanwhile sarama says that this member lives.
func (m *membership) Cleanup(sarama.ConsumerGroupSession) error {
	if m.session != nil {
		m.session.end()
	}
	return nil
}

// ConsumeClaim is not called: there are no partitions in sarama's sense.
func (m *membership) ConsumeClaim(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
	<-s.Context().Done()
	return nil
}

// joined notes that a session has begun, and writes a line if messages had to wait for it.
func (m *membership) joined(session context.Context) {
	m.group.mu.Lock()
	away, lost := m.group.away, m.group.lost
	m.group.away, m.group.lost = time.Time{}, time.Time{}
	m.group.mu.Unlock()
	switch fields := (logging.Fields{"group": m.group.config.Group}); {
	case !away.IsZero():
		fields["lasted"] = time.Since(away).Round(time.Millisecond)
		logging.StagesJoined.Write(m.group.config.Logger, nil, fields)
	case !lost.IsZero():
		logging.SessionAgain.Write(m.group.config.Logger, nil, logging.Fields{
			logging.ConsumerGroup: m.group.config.Group, "lasted": time.Since(lost).Round(time.Millisecond),
		})
	}
	context.AfterFunc(session, func() {
		m.group.mu.Lock()
		defer m.group.mu.Unlock()
		if m.group.version == m.version {
			m.group.lost = time.Now()
		}
	})
}

// maxHold is how long a message may be held while something that its handler needs is away. See wmkafka's subscriber.
const maxHold = 24 * time.Hour

// session is what this member does in one generation of the group.
type session struct {
	group   *Group
	client  sarama.Client
	config  *Config
	missing []string // topics that did not exist when the session began
	of      sarama.ConsumerGroupSession
	ctx     context.Context
	cancel  context.CancelFunc

	running sync.WaitGroup
	flights sync.WaitGroup
	wake    chan struct{} // of the scheduler; has room for one

	mu      sync.Mutex
	ended   bool
	waiting []*claim // topics that are not this member's yet
	claims  map[string]*claim
	// by broker; each is called if a partition has room again, and has room for one call
	fetchers  map[int32]chan struct{}
	scheduled time.Time // when the scheduler looks again
}

// claim is a topic with the partitions of it that are this member's.
type claim struct {
	topic *Topic
	// taking ends with the session, with the topic's subscription, and when the topic is left to another. ctx is that
	// of messages: it ends when the session has let handlers finish.
	taking, ctx context.Context
	cancel      context.CancelFunc
	partitions  []int32
	parts       []*part
	told        bool // that another has the topic
}

func newSession(of sarama.ConsumerGroupSession, m *membership, partitions map[string][]int32) *session {
	s := &session{group: m.group, client: m.client, config: &m.group.config, missing: m.missing, of: of,
		wake: make(chan struct{}, 1), claims: make(map[string]*claim), fetchers: make(map[int32]chan struct{})}
	s.ctx, s.cancel = context.WithCancel(of.Context())
	for _, name := range slices.Sorted(maps.Keys(partitions)) {
		if t := m.topics[name]; t != nil && len(partitions[name]) > 0 {
			s.waiting = append(s.waiting, &claim{topic: t, partitions: partitions[name]})
		}
	}
	return s
}

// enter gives a claim its context.
func (s *session) enter(c *claim) {
	values := hold.WithMaxHold(context.WithoutCancel(c.topic.ctx), maxHold)
	taking, stop := context.WithCancel(values)
	sessions := context.AfterFunc(s.ctx, stop)
	topics := context.AfterFunc(c.topic.ctx, stop)
	ctx, cancel := context.WithCancel(graceful.Until(values, taking))
	c.taking, c.ctx, c.cancel = taking, ctx, func() { sessions(); topics(); stop(); cancel() }
}

func (s *session) start() {
	s.running.Go(s.keep)
	s.running.Go(s.schedule)
}

// end requeues what is not settled in time, and commits what is.
func (s *session) end() {
	s.mu.Lock() // nothing is launched after that
	s.cancel()
	s.mu.Unlock()
	landed := make(chan struct{})
	go func() { s.flights.Wait(); close(landed) }()
	s.finish(landed)
	s.mu.Lock()
	for _, c := range s.claims {
		c.cancel()
	}
	s.mu.Unlock()
	grace := time.NewTimer(s.config.SettleGrace)
	defer grace.Stop()
	select {
	case <-landed:
	case <-grace.C:
	}
	s.running.Wait()
	if s.isMember() { // all, in case that an expelled member has committed less, before it joined again
		s.commit(true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// finish lets handlers finish while the group has this member: until all have landed, or their time is over. The other
// members wait.
func (s *session) finish(landed <-chan struct{}) {
	most := time.Duration(0)
	s.mu.Lock()
	for _, c := range s.claims {
		most = max(most, c.topic.Drain())
	}
	s.mu.Unlock()
	over := time.NewTimer(min(most, s.config.Rebalance))
	defer over.Stop()
	for next := firstLook; ; next = asleep / 4 {
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

// isMember reports whether the group still has this member: its partitions may be another's by now.
func (s *session) isMember() bool {
	group, err := describe(s.client, s.config.Group)
	return err == nil && group.Members[s.of.MemberID()] != nil
}

// asleep is how long a loop may stand still, as it does in a pause of the process or of its connections, before this
// member may have been expelled. The shortest session time-out that brokers allow is 6 s.
const asleep = 4 * time.Second

// steady is what a loop of a session asks before it acts.
type steady struct {
	session *session
	last    time.Time
}

func (s *session) steady() *steady { return &steady{s, time.Now()} }

// goesOn reports whether the loop may act for the group. If it stood still since the last call, the group must still
// have this member.
func (s *steady) goesOn() bool {
	if time.Since(s.last) > asleep && !s.session.isMember() {
		return false
	}
	s.last = time.Now()
	return true
}
