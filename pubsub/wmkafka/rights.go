package wmkafka

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/logging"
)

const deniedRemedy = "the message waits; give this client's user the operations Write and Describe on the topic, or its " +
	"credentials back"

// isDenied reports whether a broker says that this client may not do what it asked for, whatever the message.
func isDenied(err error) bool {
	if err == nil {
		return false
	}
	for _, code := range []sarama.KError{sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed,
		sarama.ErrClusterAuthorizationFailed, sarama.ErrSASLAuthenticationFailed} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// maxDenied bounds the topics of denials: their names may come from messages.
const maxDenied = 256

// denials are the topics that a publisher or the stages were denied, and have not had since. Each has one line in the log.
type denials struct {
	some   atomic.Bool
	mu     sync.Mutex
	topics map[string]bool
}

func (d *denials) note(logger watermill.LoggerAdapter, topic string, err error) {
	if denied := isDenied(err); !denied && (err != nil || !d.some.Load()) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		delete(d.topics, topic)
	} else if !d.topics[topic] && len(d.topics) < maxDenied {
		if d.topics == nil {
			d.topics = make(map[string]bool)
		}
		d.topics[topic] = true
		eventTopicDenied.Write(logger, err, logging.Fields{logging.Topic: topic})
	}
	d.some.Store(len(d.topics) > 0)
}

// asking connects to ask what this client's user may do, which brokers tell from 2.3 on. What cannot be asked shows when
// it is needed.
func asking(brokers []string, config *sarama.Config, ask func(admin) error) error {
	own := *config
	if !own.Version.IsAtLeast(sarama.V2_3_0_0) { // the client asks older ones as they understand it
		own.Version = sarama.V2_3_0_0
	}
	own.Metadata.Retry.Max = 0
	admin, err := connectAdmin(brokers, &own)
	if err != nil {
		return nil
	}
	defer func() { _ = admin.Close() }()
	return ask(admin)
}

// may returns an error if a broker says that this client's user lacks an operation on one of the topics.
func (a admin) may(operation sarama.AclOperation, topics ...string) error {
	broker := a.client.LeastLoadedBroker()
	if broker == nil {
		return nil
	}
	response, err := broker.GetMetadata(&sarama.MetadataRequest{Version: 8, Topics: topics,
		IncludeTopicAuthorizedOperations: true})
	if err != nil {
		return nil
	}
	for _, topic := range response.Topics {
		listed := topic.Err == sarama.ErrNoError && response.Version >= 8
		if topic.Err == sarama.ErrTopicAuthorizationFailed ||
			listed && lacks(topic.TopicAuthorizedOperations, operation) {
			return denied("topic", topic.Name, operation, sarama.ErrTopicAuthorizationFailed)
		}
	}
	return nil
}

// mayJoin returns an error if a broker says that this client's user may not be a member of the group.
func (a admin) mayJoin(group string) error {
	coordinator, err := a.client.Coordinator(group)
	if err == nil {
		var response *sarama.DescribeGroupsResponse
		response, err = coordinator.DescribeGroups(&sarama.DescribeGroupsRequest{Version: 3, Groups: []string{group},
			IncludeAuthorizedOperations: true})
		if err == nil && len(response.Groups) == 1 {
			if err = response.Groups[0].Err; err == sarama.ErrNoError && response.Version >= 3 &&
				lacks(response.Groups[0].AuthorizedOperations, sarama.AclOperationRead) {
				err = sarama.ErrGroupAuthorizationFailed
			}
		}
	}
	if errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		return denied("consumer group", group, sarama.AclOperationRead, err)
	}
	return nil
}

// mayRead returns an error if a broker says that a member could never begin. Watermill-kafka's subscriber would try
// without end.
func (s *Subscriber) mayRead(topic string) error {
	return asking(s.brokers, s.config.client, func(a admin) error {
		if err := a.may(sarama.AclOperationRead, topic); err != nil {
			return err
		}
		return a.mayJoin(s.group)
	})
}

func (p *Publisher) mayWrite(topics []string) error {
	return asking(p.brokers, p.config.client, func(a admin) error {
		return a.may(sarama.AclOperationWrite, topics...)
	})
}

// lacks reports whether an operation is not among those that a broker lists, as bits. The least number is none listed.
func lacks(listed int32, operation sarama.AclOperation) bool {
	return listed != -1<<31 && listed&(1<<operation) == 0
}

func denied(what, name string, operation sarama.AclOperation, err error) error {
	return fmt.Errorf("this client's user has no right to the operation %s on the %s %q: give it the right with "+
		"kafka-acls.sh: %w", operation.String(), what, name, err)
}
