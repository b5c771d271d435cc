package jetstream

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// Name returns the name of the stream of a topic. The topic is the stream's subject, and may have dots. A stream's name
// may not, so a topic "orders.dlq" is in the stream "orders-dlq".
func Name(topic string) string { return strings.ReplaceAll(topic, ".", "-") }

// Create makes a stream for each topic that has none. Each stream is kept in files and removes nothing. An existing
// stream that does not keep what it confirms is an error.
func Create(js nats.JetStreamManager, topics ...string) error {
	for _, topic := range topics {
		info, err := js.StreamInfo(Name(topic))
		if errors.Is(err, nats.ErrStreamNotFound) {
			info, err = js.AddStream(&nats.StreamConfig{Name: Name(topic), Subjects: []string{topic}})
		}
		if err == nil {
			err = keeps(info.Config, topic)
		}
		if err != nil {
			return fmt.Errorf("stream of topic %q: %w", topic, err)
		}
	}
	return nil
}

// keeps returns an error if a stream does not take what is published to the topic, or confirms messages and loses them.
func keeps(stream nats.StreamConfig, topic string) error {
	var flaws []string
	if len(stream.Subjects) != 1 || stream.Subjects[0] != topic {
		flaws = append(flaws, fmt.Sprintf("its subjects are %q, set them to the topic alone", stream.Subjects))
	}
	if stream.MaxAge > 0 {
		flaws = append(flaws, fmt.Sprintf("max_age %s removes messages, set it to 0", stream.MaxAge))
	}
	if stream.Retention == nats.InterestPolicy {
		flaws = append(flaws, "retention interest drops what no consumer waits for, set it to limits")
	}
	if stream.Discard == nats.DiscardOld {
		for name, limit := range map[string]int64{
			"max_msgs": stream.MaxMsgs, "max_bytes": stream.MaxBytes, "max_msgs_per_subject": stream.MaxMsgsPerSubject,
		} {
			if limit > 0 {
				flaws = append(flaws, fmt.Sprintf("%s %d removes old messages, set discard to new", name, limit))
			}
		}
	}
	if stream.NoAck {
		flaws = append(flaws, "no_ack confirms nothing, set it to false")
	}
	if stream.Storage == nats.MemoryStorage {
		flaws = append(flaws, "storage memory forgets everything at a restart, set it to file")
	}
	if len(flaws) > 0 {
		return fmt.Errorf("stream %q loses messages: %s", stream.Name, strings.Join(flaws, "; "))
	}
	return nil
}
