package wmkafka

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/naming"
)

const (
	// kafkaMaxMessageBytes is the largest record of a topic with Kafka's defaults.
	kafkaMaxMessageBytes = 1<<20 + 12
	// letterRoom is how much larger a letter may be than its message: four times what poison.MaxAdded adds.
	letterRoom = 64 << 10
	// requestRoom is what a request adds to the record in it, at most.
	requestRoom = 16 << 10
	// leaderPoll is the wait between two looks at whether a topic has its leaders.
	leaderPoll = 50 * time.Millisecond
	// sourceWait is how long a source is asked for that no broker knows.
	sourceWait = 2 * time.Second
	// usualReplicas is the replication factor of a topic without a source.
	usualReplicas = 3
)

// InitializeTopics makes sure that topics exist, as InitializeTopicsFor does without a source: a created topic has one
// partition, and room for the publisher's Producer.MaxMessageBytes.
func (p *Publisher) InitializeTopics(topics ...string) error {
	return p.InitializeTopicsFor("", topics...)
}

// InitializeTopicsFor makes sure that topics exist for the dead letters of source. It creates a missing topic with the
// partitions, replicas and min.insync.replicas of source, no expiry, no compaction, and room for source's largest
// message and 64 KiB. If no broker knows source within 2 s, it guesses one partition, and logs that. It returns when
// all partitions have leaders, and does not change an existing topic. One with less min.insync.replicas than source is
// logged as an error. After a time-out it tries once more. It is an error, with topic, setting and remedy, if:
//
//   - an existing topic expires, is bounded or compacted, or is too small for the largest letter; AllowLossyTopics
//     accepts that,
//   - a missing topic cannot be created,
//   - Producer.MaxMessageBytes is too small for source,
//   - the largest letter of source exceeds what the client or the broker takes in a request.
func (p *Publisher) InitializeTopicsFor(source string, topics ...string) error {
	if p.closed.Load() {
		return ErrClosed
	}
	if len(topics) == 0 {
		return nil
	}
	err := p.initializeTopics(source, topics)
	if slow := net.Error(nil); errors.As(err, &slow) && slow.Timeout() {
		return p.initializeTopics(source, topics)
	}
	return err
}

func (p *Publisher) initializeTopics(source string, topics []string) (err error) {
	admin, err := connectAdmin(p.brokers, p.config.client)
	if err != nil {
		return fmt.Errorf("wmkafka: topics %q cannot be initialized: %w", topics, err)
	}
	defer func() {
		if closing := admin.Close(); err == nil && closing != nil {
			err = fmt.Errorf("wmkafka: close the connection that initialized topics %q: %w", topics, closing)
		}
	}()
	wanted, err := p.wantedFor(admin, source, p.roomFor(source, topics))
	if err != nil {
		return err
	}
	if err := p.fitsRequest(admin, source, wanted); err != nil {
		return err
	}
	for _, topic := range topics {
		if err := p.initializeTopic(admin, source, topic, wanted); err != nil {
			return err
		}
	}
	if err := p.mayWrite(topics); err != nil {
		return fmt.Errorf("wmkafka: letters or stages of %q: %w", source, err)
	}
	return nil
}

// roomFor is how much larger a record in topics may be than one of source. A letter that is parked is no larger than it
// was.
func (p *Publisher) roomFor(source string, topics []string) int {
	var scheme naming.Scheme
	if m, ok := p.config.Marshaler.(Marshaler); ok {
		scheme = m.Naming
	}
	for _, topic := range topics {
		if topic != scheme.ParkedTopic(source) && topic != scheme.QuarantineTopic(source) {
			return letterRoom
		}
	}
	return 0
}

// wantedFor derives from source what its dead-letter topics should be.
func (p *Publisher) wantedFor(admin admin, source string, room int) (topicSettings, error) {
	most := p.config.client.Producer.MaxMessageBytes
	wanted := topicSettings{partitions: 1, maxMessageBytes: most}
	if source != "" {
		var found topicSettings
		err := untilKnown(p.sourceWait, func() (err error) {
			found, err = describeTopic(admin, source)
			return err
		})
		switch {
		case errors.Is(err, sarama.ErrUnknownTopicOrPartition): // it comes into being when it is subscribed to
			wanted.guessed = true
		case err != nil:
			eventSourceUnknown.Write(p.config.Logger, err,
				logging.Fields{logging.Topic: source})
		default:
			wanted.partitions, wanted.minInSync = found.partitions, found.minInSync
			wanted.maxMessageBytes, wanted.replicas = found.maxMessageBytes+room, found.replicas
		}
	}
	if most < wanted.maxMessageBytes {
		return topicSettings{}, fmt.Errorf("wmkafka: topic %q takes records of %d bytes, whose letters may have %d, and "+
			"Producer.MaxMessageBytes is %d: have PublisherConfig.Sarama set it to %d", source,
			wanted.maxMessageBytes-room, wanted.maxMessageBytes, most, wanted.maxMessageBytes)
	}
	if wanted.replicas == 0 {
		brokers, _, err := admin.DescribeCluster()
		if err != nil {
			return topicSettings{}, fmt.Errorf("wmkafka: the number of brokers, and so of replicas, is unknown; allow this "+
				"client to describe the cluster, or create the topics: %w", err)
		}
		wanted.replicas = int16(min(len(brokers), usualReplicas))
	}
	return wanted, nil
}

// untilKnown asks again if a broker does not know a topic: one that was just created is known to each broker a little
// later.
func untilKnown(within time.Duration, ask func() error) error {
	for end := time.Now().Add(within); ; time.Sleep(leaderPoll) {
		err := ask()
		if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) || time.Now().After(end) {
			return err
		}
	}
}

func (p *Publisher) initializeTopic(admin admin, source, topic string, wanted topicSettings) error {
	found, err := describeTopic(admin, topic)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		err = admin.CreateTopic(topic, wanted.detail(), false)
		if err == nil {
			eventTopicCreated.Write(p.config.Logger, nil,
				logging.Fields{logging.Topic: topic, "settings": wanted.String()})
			if wanted.guessed {
				eventTopicGuessed.Write(p.config.Logger, nil,
					logging.Fields{logging.Topic: topic, "source": source, "settings": wanted.String()})
			}
			return p.awaitLeaders(admin, topic, wanted)
		}
		if !errors.Is(err, sarama.ErrTopicAlreadyExists) { // another process was quicker
			return fmt.Errorf("wmkafka: topic %q is missing and cannot be created; let it be created with %s: %w",
				topic, wanted, err)
		}
		if err = p.awaitLeaders(admin, topic, topicSettings{partitions: 1}); err != nil {
			return err
		}
		err = untilKnown(sourceWait, func() (err error) { found, err = describeTopic(admin, topic); return err })
	}
	if errors.Is(err, sarama.ErrInvalidTopic) {
		return fmt.Errorf("wmkafka: %q cannot be the name of a topic, which has 1 to 249 letters of ASCII, digits, dots, "+
			"dashes and underscores; name it, or the handler that it is named after, otherwise: %w", topic, err)
	}
	if err != nil {
		return fmt.Errorf("wmkafka: topic %q cannot be looked up; allow this client to describe it: %w", topic, err)
	}
	if weakness := found.weakness(wanted); weakness != "" {
		eventTopicWeak.Write(p.config.Logger, fmt.Errorf("wmkafka: topic %q: %s", topic, weakness),
			logging.Fields{logging.Topic: topic, "source": source})
	}
	flaws := found.flaws(wanted)
	if len(flaws) == 0 {
		return nil
	}
	return p.accept(fmt.Errorf("wmkafka: topic %q loses or refuses messages: %s; to use it as it is, set "+
		"PublisherConfig.AllowLossyTopics", topic, strings.Join(flaws, "; ")))
}

// accept returns what is wrong with a topic, unless that is accepted.
func (p *Publisher) accept(flaw error) error {
	if !p.config.AllowLossyTopics {
		return flaw
	}
	eventTopicLossy.Write(p.config.Logger, flaw, nil)
	return nil
}

// fitsRequest finds out whether the largest letter of source fits into a request. A broker cuts the connection of a
// client whose request is too large, which looks like an outage that never ends.
func (p *Publisher) fitsRequest(admin admin, source string, wanted topicSettings) error {
	if source == "" {
		return nil
	}
	const setting = "socket.request.max.bytes"
	most, limit := largestRequest, "what this client sends"
	if bytes, err := brokerNumber(admin, setting); err != nil {
		eventRequestUnknown.Write(p.config.Logger, err, nil)
	} else if bytes-requestRoom <= most {
		most, limit = bytes-requestRoom, fmt.Sprintf("the broker's %s=%d", setting, bytes)
	}
	if wanted.maxMessageBytes <= most {
		return nil
	}
	return p.accept(fmt.Errorf("wmkafka: letters of topic %q may have %d bytes, and a request no more than %d, by %s: "+
		"lower the topic's max.message.bytes by %d at least", source, wanted.maxMessageBytes, most, limit,
		wanted.maxMessageBytes-most))
}

func (p *Publisher) awaitLeaders(admin admin, topic string, wanted topicSettings) error {
	for end := time.Now().Add(p.config.topicTimeout); ; time.Sleep(leaderPoll) {
		err := leaders(admin, topic, wanted.partitions)
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("wmkafka: topic %q was created but is not ready after %s: %w", topic,
				p.config.topicTimeout, err)
		}
	}
}

func leaders(admin admin, topic string, partitions int32) error {
	metadata, err := topicMetadata(admin, topic)
	if err != nil {
		return err
	}
	if n := len(metadata.Partitions); n < int(partitions) {
		return fmt.Errorf("%d of %d partitions are there", n, partitions)
	}
	for _, partition := range metadata.Partitions {
		// The metadata names a leader before it knows that it is one.
		if _, err := admin.client.GetOffset(topic, partition.ID, sarama.OffsetNewest); err != nil {
			return fmt.Errorf("partition %d has no leader: %w", partition.ID, err)
		}
	}
	return nil
}

// admin reads and changes the topics of a cluster.
type admin struct {
	sarama.ClusterAdmin
	client sarama.Client
}

func connectAdmin(brokers []string, config *sarama.Config) (admin, error) {
	client, err := sarama.NewClient(brokers, config)
	if err != nil {
		return admin{}, err
	}
	clusterAdmin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return admin{}, errors.Join(err, client.Close())
	}
	return admin{clusterAdmin, client}, nil // whose Close closes the client too
}

func topicMetadata(admin admin, topic string) (*sarama.TopicMetadata, error) {
	all, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return nil, err
	}
	for _, metadata := range all {
		if metadata.Name == topic {
			if metadata.Err != sarama.ErrNoError && metadata.Err != sarama.ErrLeaderNotAvailable {
				return nil, metadata.Err
			}
			return metadata, nil
		}
	}
	return nil, sarama.ErrUnknownTopicOrPartition
}

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

const (
	// minInSyncReplicas is the number of replicas that confirm a record.
	minInSyncReplicas = "min.insync.replicas"
	maxMessageBytes   = "max.message.bytes"
)

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
		entries, err = admin.DescribeConfig(sarama.ConfigResource{ //lint:ignore SA1019 the floor has no other
			Type: sarama.TopicResource, Name: topic,
			ConfigNames: []string{maxMessageBytes, minInSyncReplicas, "retention.ms", "retention.bytes",
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
	values := make(map[string]string, len(entries))
	for _, entry := range entries {
		values[entry.Name] = entry.Value
	}
	if n, err := strconv.Atoi(values[maxMessageBytes]); err == nil {
		s.maxMessageBytes = n
	}
	s.minInSync, _ = strconv.Atoi(values[minInSyncReplicas])
	s.retentionMs, s.retentionBytes = values["retention.ms"], values["retention.bytes"]
	s.cleanupPolicy = values["cleanup.policy"]
	return s, nil
}

// brokerNumber returns a setting of one of the brokers.
func brokerNumber(admin admin, setting string) (int, error) {
	brokers := admin.client.Brokers()
	if len(brokers) == 0 {
		return 0, sarama.ErrBrokerNotAvailable
	}
	entries, err := admin.DescribeConfig(sarama.ConfigResource{ //lint:ignore SA1019 the floor has no other
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
		{maxMessageBytes, strconv.Itoa(s.maxMessageBytes)},
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
