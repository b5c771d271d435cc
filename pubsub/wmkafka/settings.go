package wmkafka

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/IBM/sarama"
)

// topicSettings are what matters of a topic.
type topicSettings struct {
	partitions      int32
	replicas        int16
	maxMessageBytes int
	minInSync       int  // 0 leaves it to the cluster
	guessed         bool // because no broker knows the source
	// Of an existing topic, as the broker writes them.
	retentionMs, retentionBytes, cleanupPolicy string
}

// minInSyncReplicas is the number of replicas that confirm a record.
const minInSyncReplicas = "min.insync.replicas"

func describeTopic(admin admin, topic string) (topicSettings, error) {
	metadata, err := topicMetadata(admin, topic)
	if err != nil {
		return topicSettings{}, err
	}
	s := topicSettings{partitions: int32(len(metadata.Partitions)), maxMessageBytes: kafkaMaxMessageBytes}
	if s.partitions > 0 {
		s.replicas = int16(len(metadata.Partitions[0].Replicas))
	}
	var entries []sarama.ConfigEntry
	err = untilKnown(sourceWait, func() (err error) {
		entries, err = admin.DescribeConfig(sarama.ConfigResource{
			Type: sarama.TopicResource, Name: topic,
			ConfigNames: []string{"max.message.bytes", minInSyncReplicas, "retention.ms", "retention.bytes",
				"cleanup.policy"},
		})
		if code := (*sarama.DescribeConfigError)(nil); errors.As(err, &code) {
			return fmt.Errorf("%w: %s", code.Err, code.ErrMsg)
		}
		return err
	})
	if err != nil {
		return topicSettings{}, fmt.Errorf("describe the configuration of %q: %w", topic, err)
	}
	for _, entry := range entries {
		switch entry.Name {
		case "max.message.bytes":
			if n, err := strconv.Atoi(entry.Value); err == nil {
				s.maxMessageBytes = n
			}
		case minInSyncReplicas:
			if n, err := strconv.Atoi(entry.Value); err == nil {
				s.minInSync = n
			}
		case "retention.ms":
			s.retentionMs = entry.Value
		case "retention.bytes":
			s.retentionBytes = entry.Value
		case "cleanup.policy":
			s.cleanupPolicy = entry.Value
		}
	}
	return s, nil
}

// brokerNumber returns a setting of one of the brokers.
func brokerNumber(admin admin, setting string) (int, error) {
	brokers := admin.client.Brokers()
	if len(brokers) == 0 {
		return 0, sarama.ErrBrokerNotAvailable
	}
	entries, err := admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.BrokerResource, Name: strconv.Itoa(int(brokers[0].ID())), ConfigNames: []string{setting},
	})
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		if entry.Name == setting {
			return strconv.Atoi(entry.Value)
		}
	}
	return 0, fmt.Errorf("the broker does not report %s", setting)
}

// A topic whose limit is above these keeps its records for as long as anyone needs them: 100 years, and an exbibyte.
const (
	maxRetentionMs    = 100 * 36525 / 100 * 24 * 3600 * 1000
	maxRetentionBytes = 1 << 60
)

// unlimited reports whether a limit of a topic, as the broker writes it, is none or above enough.
func unlimited(limit string, enough int64) bool {
	n, err := strconv.ParseInt(limit, 10, 64)
	return err == nil && (n == -1 || n > enough)
}

// flaws says what in an existing topic loses or refuses letters.
func (s topicSettings) flaws(wanted topicSettings) (flaws []string) {
	if !unlimited(s.retentionMs, maxRetentionMs) {
		flaws = append(flaws, "letters are deleted after retention.ms="+s.retentionMs+"; set it to -1")
	}
	if !unlimited(s.retentionBytes, maxRetentionBytes) {
		flaws = append(flaws, "letters are deleted beyond retention.bytes="+s.retentionBytes+"; set it to -1")
	}
	if s.cleanupPolicy != "delete" {
		flaws = append(flaws, "letters with the same key overwrite one another, and those without key are refused, with "+
			"cleanup.policy="+s.cleanupPolicy+"; set it to delete")
	}
	if s.maxMessageBytes < wanted.maxMessageBytes {
		flaws = append(flaws, fmt.Sprintf("letters are refused beyond max.message.bytes=%d; set it to %d",
			s.maxMessageBytes,
			wanted.maxMessageBytes))
	}
	return flaws
}

// weakness says that an existing topic confirms records with fewer replicas than their source asks for. It returns ""
// if it does not.
func (s topicSettings) weakness(wanted topicSettings) string {
	if s.minInSync >= wanted.minInSync {
		return ""
	}
	text := fmt.Sprintf("its records are confirmed by %s=%d, and those of its source by %d; set it to %d",
		minInSyncReplicas, s.minInSync, wanted.minInSync, wanted.minInSync)
	if int(s.replicas) < wanted.minInSync {
		text += fmt.Sprintf(", after the topic has more replicas than %d", s.replicas)
	}
	return text
}

// entries are what a topic for dead letters is configured with.
func (s topicSettings) entries() [][2]string {
	entries := [][2]string{
		{"retention.ms", "-1"},
		{"retention.bytes", "-1"},
		{"cleanup.policy", "delete"},
		{"max.message.bytes", strconv.Itoa(s.maxMessageBytes)},
	}
	if n := min(s.minInSync, int(s.replicas)); n > 0 { // with more, no letter could be written
		entries = append(entries, [2]string{minInSyncReplicas, strconv.Itoa(n)})
	}
	return entries
}

func (s topicSettings) detail() *sarama.TopicDetail {
	detail := &sarama.TopicDetail{NumPartitions: s.partitions, ReplicationFactor: s.replicas,
		ConfigEntries: map[string]*string{}}
	for _, entry := range s.entries() {
		detail.ConfigEntries[entry[0]] = &entry[1]
	}
	return detail
}

func (s topicSettings) String() string {
	text := fmt.Sprintf("%d partitions, replication factor %d", s.partitions, s.replicas)
	for _, entry := range s.entries() {
		text += ", " + entry[0] + "=" + entry[1]
	}
	return text
}
