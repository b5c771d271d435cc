package wmkafka

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// pinned is how long a broker keeps the offsets that a member leaves behind. By default it forgets those of a group
// without members after seven days (offsets.retention.minutes). The group would then begin anew with the oldest message.
const pinned = 100 * 365 * 24 * time.Hour

// pin commits the offsets of a session's partitions once more, to be kept for long. The member is about to leave: it may
// be the last one. Sarama's own commits cannot say how long offsets are kept: version 5 of the request dropped it, and
// brokers take version 4 still.
func (s *subscription) pin(session sarama.ConsumerGroupSession) {
	session.Commit() // or sarama would commit again, without the time, when it releases the session
	config, connections := through(s.config.client)
	config.Metadata.Retry.Max = 0
	cut := time.AfterFunc(lastWords, connections.cut)
	defer cut.Stop()
	err := pinOffsets(s.brokers, config, s.group, session)
	if err != nil {
		logging.OffsetsNotPinned.Write(s.config.Logger, err,
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
	request.Version, request.RetentionTime = 4, pinned.Milliseconds()
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
