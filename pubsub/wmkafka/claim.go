package wmkafka

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// maxHold is how long a message may be held while something that its handler needs is unavailable. The session goes on
// meanwhile, and the message's context ends with it. So a message need not be requeued, only to be delivered again.
const maxHold = 24 * time.Hour

// Setup begins a group session. It writes a line if messages had to wait for it.
func (s *subscription) Setup(session sarama.ConsumerGroupSession) error {
	if lost := s.lost.Load(); lost > 0 {
		logging.SessionAgain.Write(s.config.Logger, nil, logging.Fields{
			logging.Topic: s.topic, logging.ConsumerGroup: s.group,
			"lasted": time.Since(time.Unix(0, lost)).Round(time.Millisecond),
		})
	}
	s.tenure = s.member.begin(session, graceful.TimeoutOf(session.Context()))
	s.beginAt0(session)
	context.AfterFunc(session.Context(), func() { s.lost.Store(time.Now().UnixNano()) })
	return nil
}

// beginAt0 commits an offset where the group has none, before a message comes. So a group without an offset lost it,
// and is not one whose process was killed before it committed. Sarama takes 0 for the oldest record if 0 is gone.
func (s *subscription) beginAt0(session sarama.ConsumerGroupSession) {
	config := s.client.Consumer
	if config.Offsets.Initial != sarama.OffsetOldest || !config.Group.ResetInvalidOffsets {
		return
	}
	for topic, partitions := range session.Claims() {
		for _, partition := range partitions {
			session.MarkOffset(topic, partition, 0, "") // does nothing where there is an offset
		}
	}
	session.Commit()
}

// Cleanup ends it. All messages are settled.
func (s *subscription) Cleanup(session sarama.ConsumerGroupSession) error {
	s.tenure.cut()
	if s.ending.Err() != nil {
		s.pin(session)
	}
	return nil
}

// ConsumeClaim delivers the records of one partition until the session ends, and lets its handlers finish. It must not
// return before: that would end the session for all partitions.
func (s *subscription) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	defer func() {
		for range claim.Messages() { // closed with the session; a tracer in between would hang on the record it holds
		}
	}()
	if s.config.InFlight > 1 {
		s.consumeInLanes(session, claim)
	} else {
		s.consumeInTurn(session, claim)
	}
	return nil
}

// next is nil when the session has ended.
func next(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) *sarama.ConsumerMessage {
	if session.Context().Err() != nil { // of two channels that are ready, select takes any
		return nil
	}
	records := claim.Messages()
	select { // most often there is one, and a look costs half of a wait
	case record := <-records:
		return record
	default:
	}
	select {
	case <-session.Context().Done():
		return nil
	case record := <-records:
		return record
	}
}

// WrapConsumerGroupHandler takes the place of the stock handler. Watermill-kafka calls it for each member that it makes
// of this process. The one before could not leave the group if no broker answered, and a rebalance would wait for it:
// for 8 s, or the group's Rebalance.Timeout.
func (s *subscription) WrapConsumerGroupHandler(sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	if s.tenure != nil {
		go s.leaveAs(s.tenure.session.MemberID())
		s.tenure = nil
	}
	return s
}

// leaveAs takes a member out of the group, over a connection of its own. Brokers that start remember it, however long
// they were unavailable.
func (s *subscription) leaveAs(member string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config, connections := through(s.config.client)
	go func() {
		defer connections.cut()
		select {
		case <-ctx.Done():
		case <-s.ended:
			cancel()
		}
	}()
	for ctx.Err() == nil && !left(s.brokers, config, s.group, member) {
		timing.Wait(ctx, config.Metadata.Retry.Backoff)
	}
}

// left reports whether the group does not have the member any more.
func left(brokers []string, config *sarama.Config, group, member string) bool {
	client, err := sarama.NewClient(brokers, config)
	if err != nil {
		return false
	}
	defer func() { _ = client.Close() }()
	coordinator, err := client.Coordinator(group)
	if err != nil {
		return false
	}
	answer, err := coordinator.LeaveGroup(&sarama.LeaveGroupRequest{Version: 1, GroupId: group, MemberId: member})
	return err == nil && (answer.Err == sarama.ErrNoError || errors.Is(answer.Err, sarama.ErrUnknownMemberId))
}

const (
	// soon is how long handlers may finish before the broker is asked whether this member is still one: most do.
	soon = 100 * time.Millisecond
	// askEvery is the time between two questions, and how long an answer may take.
	askEvery = time.Second
)

// member is a member of a consumer group.
type member struct {
	config  *SubscriberConfig
	brokers []string
	group   string
}

// tenure is what a member does in one group session, and for a little longer. The session ends when the subscription
// does, and in each rebalance. Handlers may finish then, for as long as the broker leaves the partitions
// to this member: the client sends heartbeats, marks are committed, and other members wait.
type tenure struct {
	session sarama.ConsumerGroupSession
	work    context.Context // of messages
	cut     context.CancelFunc
}

// begin begins a tenure, whose handlers may finish for as long as most.
func (m *member) begin(session sarama.ConsumerGroupSession, most time.Duration) *tenure {
	taking := session.Context()
	t := &tenure{session: session}
	t.work, t.cut = context.WithCancel(worksUntil(taking, taking))
	context.AfterFunc(taking, func() {
		defer t.cut()
		if most > 0 && timing.Wait(t.work, min(soon, most)) {
			m.finish(t, most-soon)
		}
	})
	return t
}

// worksUntil returns ctx for messages that are taken until taking ends.
func worksUntil(ctx, taking context.Context) context.Context {
	return graceful.Until(hold.WithMaxHold(context.WithoutCancel(ctx), maxHold), taking)
}

// finish returns when handlers must not go on: after most, when a rebalance has waited for as long as it may, or when
// the group may have given the partitions to another member.
func (m *member) finish(t *tenure, most time.Duration) {
	until := time.Now().Add(most)
	ctx, cancel := context.WithCancel(t.work)
	defer cancel()
	answers := m.membership(ctx, t.session)
	defer func() {
		cancel()
		for range answers {
		}
	}()
	room := time.AfterFunc(most, cancel)
	defer room.Stop()
	rebalancing := false
	for late := time.NewTimer(askEvery); ; late.Reset(2 * askEvery) {
		select {
		case <-ctx.Done():
			return
		case <-late.C: // no answer, which may mean that the broker does not see this member
			return
		case err := <-answers:
			switch {
			case err == nil:
			case !errors.Is(err, sarama.ErrRebalanceInProgress):
				return
			case !rebalancing:
				rebalancing = true
				room.Reset(min(m.config.rebalanceRoom(), time.Until(until)))
			}
		}
	}
}

// rebalanceRoom is how long a rebalance may wait for handlers: members that hold it up for longer than the time-out are
// left out of it. It is noticed with a heartbeat, and the grace comes after it.
func (c *SubscriberConfig) rebalanceRoom() time.Duration {
	group := &c.client.Consumer.Group
	return max(group.Rebalance.Timeout-group.Heartbeat.Interval-c.settleGrace-askEvery, 0)
}

// membership asks again and again whether this process is still a member of the generation of session, over a
// connection of its own: sarama does not say why a session ended. Each answer is nil, ErrRebalanceInProgress, or the
// error with which it may not be one. The channel is closed when ctx has ended.
func (m *member) membership(ctx context.Context, session sarama.ConsumerGroupSession) <-chan error {
	config, connections := through(m.config.client)
	config.Metadata.Retry.Max = 0
	cut := context.AfterFunc(ctx, connections.cut)
	answers := make(chan error)
	go func() {
		defer close(answers)
		defer cut()
		client, err := sarama.NewClient(m.brokers, config)
		if err == nil {
			defer func() { _ = client.Close() }()
		}
		for ctx.Err() == nil {
			if err == nil {
				err = heartbeat(client, m.group, session)
			}
			select {
			case answers <- err:
			case <-ctx.Done():
				return
			}
			if err != nil && !errors.Is(err, sarama.ErrRebalanceInProgress) || !timing.Wait(ctx, askEvery) {
				return
			}
			err = nil
		}
	}()
	return answers
}

func heartbeat(client sarama.Client, group string, session sarama.ConsumerGroupSession) error {
	coordinator, err := client.Coordinator(group)
	if err != nil {
		return err
	}
	response, err := coordinator.Heartbeat(&sarama.HeartbeatRequest{
		GroupId: group, MemberId: session.MemberID(), GenerationId: session.GenerationID(),
	})
	switch {
	case err != nil:
		return err
	case response.Err != sarama.ErrNoError:
		return response.Err
	}
	return nil
}

// pinned is how long a broker keeps the offsets that a member leaves behind. By default it forgets those of a group
// without members after seven days (offsets.retention.minutes). The group would then begin anew with the oldest
// message.
const pinned = 100 * 365 * 24 * time.Hour

// pin commits the offsets of a session's partitions once more, to be kept for long. The member is about to leave: it
// may be the last one. Sarama's own commits cannot say how long offsets are kept: version 5 of the request dropped it,
// and brokers take version 4 still.
func (s *subscription) pin(session sarama.ConsumerGroupSession) {
	session.Commit() // or sarama would commit again, without the time, when it releases the session
	config, connections := through(s.config.client)
	config.Metadata.Retry.Max = 0
	cut := time.AfterFunc(lastWords, connections.cut)
	defer cut.Stop()
	err := pinOffsets(s.brokers, config, s.group, session)
	if err != nil {
		eventOffsetsNotPinned.Write(s.config.Logger, err,
			logging.Fields{logging.Topic: s.topic, logging.ConsumerGroup: s.group})
	}
}

func pinOffsets(brokers []string, config *sarama.Config, group string, session sarama.ConsumerGroupSession) (err error) {
	admin, err := connectAdmin(brokers, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	committed, err := admin.committed(context.Background(), group, session.Claims())
	if err != nil {
		return err
	}
	return pinCommitted(admin.client, &sarama.OffsetCommitRequest{ConsumerGroup: group, ConsumerID: session.MemberID(),
		ConsumerGroupGeneration: session.GenerationID()}, committed)
}

// pinCommitted commits what is committed, by a request that names the member.
func pinCommitted(client sarama.Client, request *sarama.OffsetCommitRequest,
	committed *sarama.OffsetFetchResponse) error {
	found := false
	for topic, partitions := range committed.Blocks {
		for partition, block := range partitions {
			if block.Err == sarama.ErrNoError && block.Offset >= 0 {
				request.AddBlock(topic, partition, block.Offset, 0, block.Metadata)
				found = true
			}
		}
	}
	if !found {
		return nil
	}
	return commitPinned(client, request)
}

// commitPinned commits offsets to be kept for long.
func commitPinned(client sarama.Client, request *sarama.OffsetCommitRequest) error {
	request.Version, request.RetentionTime = 4, pinned.Milliseconds()
	coordinator, err := client.Coordinator(request.ConsumerGroup)
	if err != nil {
		return err
	}
	response, err := coordinator.CommitOffset(request)
	if err != nil {
		return err
	}
	for _, partitions := range response.Errors {
		for _, code := range partitions {
			if code != sarama.ErrNoError {
				return code
			}
		}
	}
	return nil
}

// Adapters for Kafka, RabbitMQ and SQL.
var (
	// each: Start the service within seven days: the broker then forgets the offsets, and all messages come again.
	eventOffsetsNotPinned = logging.ErrorEvent("offsets_not_pinned",
		"A member that left could not have its offsets kept for good; the broker keeps them for its own time")
	// once: Let the client describe the topic.
	eventSourceUnknown = logging.ErrorEvent("source_unknown",
		"The source topic cannot be described; its dead-letter topics are created without a source")
	// outage: Check the brokers, and the client's right to join.
	eventStagesNotJoined = logging.ErrorEvent("stages_not_joined",
		"The consumer group of the stages cannot be joined; it is tried again until it can")
	// outage: nothing
	eventStagesJoined = logging.InfoEvent("stages_joined", "The consumer group of the stages is joined again")
	// each: nothing, unless it lasts
	eventStageNotMarked = logging.InfoEvent("stage_not_marked",
		"Offsets of stage topics cannot be committed; it is tried again each second")
	// once: nothing
	eventTopicCreated = logging.InfoEvent("topic_created", "Created a topic")
	// once: Create the source first; delete the guessed topic while it is empty.
	eventTopicGuessed = logging.InfoEvent("topic_guessed",
		"A topic was created without its source, which no broker knows yet; its settings are guessed")
	// start: Set `min.insync.replicas` as the error says.
	eventTopicWeak = logging.ErrorEvent("topic_weak",
		"A topic confirms its records with fewer replicas than its source asks for")
	// outage: Give the client's user its right back, or its credentials.
	eventTopicDenied = logging.ErrorEvent("topic_denied", "The broker denies this client a topic; its messages wait")
	// once: Change the topic, or accept the error.
	eventTopicLossy = logging.ErrorEvent("topic_lossy",
		"Messages may be lost or refused, which PublisherConfig.AllowLossyTopics accepts")
	// once: nothing
	eventRequestUnknown = logging.DebugEvent("request_unknown", "The broker does not report how large a request may be")
	// each: Let `Key` return the key of every message, or "" for one without a key.
	eventKeyPanicked = logging.ErrorEvent("key_panicked",
		"SubscriberConfig.Key panicked; the partition waits until it returns a key")
)
