package wmkafka

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
)

// Feature D5: topics for dead letters never expire, have room for the source's largest message and a letter's metadata,
// and as many partitions; a letter can be published at once, of a message as large as the source takes.
func TestInitializeTopics(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		source     string
		maxMessage int // of the source
		partitions int32
		want       int
	}{
		"defaults":  {source: "-source", maxMessage: kafkaMaxMessageBytes, partitions: 3, want: kafkaMaxMessageBytes + letterRoom},
		"large":     {source: "-source", maxMessage: 3 << 20, partitions: 2, want: 3<<20 + letterRoom},
		"no source": {maxMessage: 3 << 20, partitions: 1, want: 3<<20 + letterRoom},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			source := ""
			if row.source != "" {
				source = c.topic + row.source
				c.create(source, row.partitions, map[string]string{"max.message.bytes": strconv.Itoa(row.maxMessage)})
			}
			logged := &testkit.Log{}
			pub := c.publisher(PublisherConfig{Sarama: sends(3<<20 + letterRoom), Shared: observe.Shared{Logger: logged}})
			dlq, invalid := c.topic+".dlq", c.topic+".invalid"
			c.deleteLater(dlq, invalid)
			for range 2 { // the second time they are there
				testkit.NoError(t, pub.InitializeTopicsFor(source, dlq, invalid))
			}
			for _, topic := range []string{dlq, invalid} {
				testkit.Returns(t, topicSettings{partitions: row.partitions, replicas: 1, maxMessageBytes: row.want, minInSync: 1,
					retentionMs: "-1", retentionBytes: "-1", cleanupPolicy: "delete"})(describeTopic(c.admin, topic))
			}
			msg := message.NewMessage("large", make([]byte, row.maxMessage-100))
			msg.Metadata.Set("story", strings.Repeat("x", 16<<10))
			testkit.NoError(t, pub.Publish(dlq, msg))
			testkit.Check(t, len(logged.Errors()) == 0, "logged: %v", logged.Errors())
		})
	}
}

// Features D5, D16: an existing topic that would lose letters which it confirmed, or refuse the largest, is an error at
// start-up that says what, where and what to do. Nothing in it is changed, and who accepts it says so.
func TestFlawsOfExistingTopics(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dlq, room := c.topic+".dlq", strconv.Itoa(kafkaMaxMessageBytes+letterRoom)
	c.create(dlq, 1, map[string]string{
		"retention.ms": "604800000", "retention.bytes": "1000000", "cleanup.policy": "compact", "max.message.bytes": "1048588"})
	before := testkit.Must(describeTopic(c.admin, dlq))
	log := &testkit.Log{}
	err := c.publisher(PublisherConfig{Shared: observe.Shared{Logger: log}}).InitializeTopicsFor(c.topic, dlq)
	testkit.Check(t, len(log.Errors()) == 0, "logged %v", log.Errors())
	lax := c.publisher(PublisherConfig{Shared: observe.Shared{Logger: log}, AllowLossyTopics: true})
	testkit.NoError(t, lax.InitializeTopicsFor(c.topic, dlq))
	for _, part := range []string{strconv.Quote(dlq), "retention.ms=604800000; set it to -1", "retention.bytes=1000000; set it to -1",
		"cleanup.policy=compact; set it to delete", "max.message.bytes=1048588; set it to " + room, "PublisherConfig.AllowLossyTopics"} {
		testkit.Says(t, err, part)
		testkit.Says(t, log.Errors()[0].Err, part)
	}
	testkit.Returns(t, before)(describeTopic(c.admin, dlq))
}

// Feature D5: a retention of more than 100 years, or of more than an exbibyte, loses nothing.
func TestRetentionWithoutLimit(t *testing.T) {
	for _, row := range []struct {
		ms, bytes string
		flaws     int
	}{
		{"-1", "-1", 0},
		{"9223372036854775807", "9223372036854775807", 0},
		{"3155760000001", "1152921504606846977", 0},
		{"3155760000000", "-1", 1},
		{"-1", "1152921504606846976", 1},
		{"-2", "", 2},
		{"92233720368547758070", "1e30", 2},
	} {
		s := topicSettings{retentionMs: row.ms, retentionBytes: row.bytes, cleanupPolicy: "delete"}
		testkit.Equal(t, row.ms+" ms, "+row.bytes+" bytes: flaws", len(s.flaws(topicSettings{})), row.flaws)
	}
}

// Features D5, D16, promise P7: letters that the publisher or a request has no room for are an error at start-up, as
// the broker would cut the connection each time.
func TestInitializeTopicsErrors(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	large, huge := c.topic+"-large", c.topic+"-huge"
	c.create(large, 1, map[string]string{"max.message.bytes": "5000000"})
	c.create(huge, 1, map[string]string{"max.message.bytes": strconv.Itoa(100 << 20)})
	pub, big := c.publisher(PublisherConfig{}), c.publisher(PublisherConfig{Sarama: sends(200 << 20)})
	missing := pub.initializeTopic(c.admin, c.topic, c.topic+".dlq", topicSettings{partitions: 1, replicas: 30})
	testkit.Is(t, missing, sarama.ErrInvalidReplicationFactor)
	spaced, long := "orders.bill ing.retry.5s", strings.Repeat("x", 250)
	const name = " cannot be the name of a topic, which has 1 to 249 letters"
	for _, row := range []struct {
		err  error
		says []string
	}{
		{pub.InitializeTopicsFor(large, large+".dlq"), []string{large, "set it to 5065536"}},
		{big.InitializeTopicsFor(huge, huge+".dlq"), []string{huge, "socket.request.max.bytes=104857600",
			"lower the topic's max.message.bytes by 81920"}},
		{missing, []string{c.topic + ".dlq", "retention.ms=-1"}},
		{pub.InitializeTopicsFor(c.topic, spaced), []string{strconv.Quote(spaced) + name}},
		{pub.InitializeTopics(long), []string{strconv.Quote(long) + name}},
	} {
		for _, says := range row.says {
			testkit.Says(t, row.err, says)
		}
	}
	testkit.NoError(t, pub.InitializeTopics())
	testkit.Is(t, big.Publish(c.topic, message.NewMessage("1", make([]byte, 101<<20))), classify.ErrTooLarge) // cannot be encoded
}

// Feature D5: many instances that start at once create a topic once, and all find it ready.
func TestInitializeAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dlq := c.topic + ".dlq"
	c.deleteLater(dlq)
	pub := c.publisher(PublisherConfig{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			testkit.Is(t, errors.Join(pub.InitializeTopicsFor(c.topic, dlq), pub.Publish(dlq, message.NewMessage("", nil))), nil)
		})
	}
	all.Wait()
}

// Feature D5, promise P1: a letter is confirmed by as many replicas as its source asks for, as far as the topic has
// them. An existing topic that asks for fewer is an error in the log, with the remedy.
func TestInitializeTopicsReplicas(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	source, weak, strong, made := c.topic+"-source", c.topic+"-weak.dlq", c.topic+"-strong.dlq", c.topic+"-made.dlq"
	c.create(source, 1, map[string]string{"min.insync.replicas": "2"})
	sound := map[string]string{"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": strconv.Itoa(kafkaMaxMessageBytes + letterRoom)}
	c.create(weak, 1, sound)
	sound["min.insync.replicas"] = "2"
	c.create(strong, 1, sound)
	c.deleteLater(made)
	logged := &testkit.Log{}
	pub := c.publisher(PublisherConfig{Shared: observe.Shared{Logger: logged}})
	testkit.NoError(t, pub.InitializeTopicsFor(source, strong))
	testkit.Check(t, len(logged.Errors()) == 0, "logged %v", logged.Errors())
	testkit.NoError(t, pub.InitializeTopicsFor(source, weak))
	for _, part := range []string{"event:topic_weak", weak, "min.insync.replicas=1", "set it to 2", "more replicas than 1"} {
		testkit.Check(t, strings.Contains(fmt.Sprint(logged.Errors()), part),
			"the log lacks %q: %v", part, logged.Errors())
	}
	wanted := topicSettings{replicas: 3, minInSync: 2}
	testkit.Equal(t, minInSyncReplicas, *wanted.detail().ConfigEntries[minInSyncReplicas], "2")
	testkit.NoError(t, pub.InitializeTopicsFor(source, made))
	testkit.Equal(t, "replicas of one", testkit.Must(describeTopic(c.admin, made)).minInSync, 1)
	for _, topic := range []string{weak, made} {
		testkit.NoError(t, pub.Publish(topic, message.NewMessage("", nil)))
	}
}

// Feature D5: a source that no broker knows yet is asked for again, before its letters' topics get settings that are
// guessed. A guess is in the log.
func TestInitializeTopicsAsksAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	source, dlq := c.topic+"-late", c.topic+"-late.dlq"
	c.deleteLater(dlq)
	pub := c.publisher(PublisherConfig{})
	pub.sourceWait = patience
	done := make(chan error, 1)
	go func() { done <- pub.InitializeTopicsFor(source, dlq) }()
	time.Sleep(20 * leaderPoll) // if the source comes before the question, the test shows less
	c.create(source, 6, nil)
	testkit.NoError(t, <-done)
	testkit.Equal(t, "partitions", testkit.Must(describeTopic(c.admin, dlq)).partitions, 6)
	logged := &testkit.Log{}
	guessed := c.topic + "-guessed.dlq"
	c.deleteLater(guessed)
	pub = c.publisher(PublisherConfig{Shared: observe.Shared{Logger: logged}})
	testkit.NoError(t, pub.InitializeTopicsFor(c.topic+"-missing", guessed))
	lines := linesOf(logged, watermill.InfoLogLevel, "topic_guessed")
	testkit.Check(t, len(lines) == 1 && lines[0].Fields["source"] == c.topic+"-missing", "the log has %v", lines)
}
