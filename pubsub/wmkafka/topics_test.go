package wmkafka

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/settings"
)

// Promise P7: a name that Kafka does not allow, as of a stage whose handler has a space in its name, is told with what
// is allowed.
func TestInitializeTopicsRefusesName(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	pub := c.publisher(PublisherConfig{})
	for _, name := range []string{"orders.bill ing.retry.5s", strings.Repeat("x", 250)} {
		err := pub.InitializeTopicsFor(c.topic, name)
		if err == nil || !strings.Contains(err.Error(), strconv.Quote(name)+" cannot be the name of a topic, which has 1 to 249 letters") {
			t.Errorf("%.40s: %v", name, err)
		}
	}
}

// Feature D5: topics for dead letters never expire, have room for the source's largest message and a letter's metadata,
// and as many partitions; a letter can be published at once, of a message as large as the source takes.
func TestInitializeTopics(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		source     bool
		maxMessage int // of the source
		partitions int32
		want       int
	}{
		"source with defaults": {source: true, partitions: 3, want: kafkaMaxMessageBytes + letterRoom},
		"large source":         {source: true, maxMessage: 3 << 20, partitions: 2, want: 3<<20 + letterRoom},
		"no source":            {partitions: 1, want: 3<<20 + letterRoom},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			source := ""
			if row.source {
				source = c.topic + "-source"
				entries := map[string]string{}
				if row.maxMessage > 0 {
					entries["max.message.bytes"] = strconv.Itoa(row.maxMessage)
				}
				c.create(source, row.partitions, entries)
			}
			logged := &testkit.Log{}
			pub := c.publisher(PublisherConfig{Sarama: sends(3<<20 + letterRoom), Shared: settings.Shared{Logger: logged}})
			dlq, invalid := c.topic+".dlq", c.topic+".invalid"
			c.deleteLater(dlq, invalid)
			for range 2 { // the second time they are there
				testkit.NoError(t, pub.InitializeTopicsFor(source, dlq, invalid))
			}
			for _, topic := range []string{dlq, invalid} {
				found, err := describeTopic(c.admin, topic)
				want := topicSettings{partitions: row.partitions, replicas: 1, maxMessageBytes: row.want, minInSync: 1, retentionMs: "-1", retentionBytes: "-1", cleanupPolicy: "delete"}
				testkit.Check(t, err == nil && found == want, "%s is %+v, want %+v; %v", topic, found, want, err)
			}
			if row.maxMessage > 0 {
				msg := message.NewMessage("large", make([]byte, row.maxMessage-100))
				msg.Metadata.Set("story", strings.Repeat("x", 16<<10))
				testkit.NoError(t, pub.Publish(dlq, msg))
			}
			if lines := logged.Errors(); len(lines) > 0 {
				t.Errorf("logged: %v", lines)
			}
		})
	}
}

// Features D5, D16: an existing topic that would lose letters which it confirmed, or refuse the largest, is an error at
// start-up that says what, where and what to do, for dead letters as for stages. Nothing in it is changed, and who
// accepts it says so.
func TestFlawsOfExistingTopics(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	room := strconv.Itoa(kafkaMaxMessageBytes + letterRoom)
	sound := map[string]string{"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete", "max.message.bytes": room}
	refused, logged := &testkit.Log{}, &testkit.Log{}
	strict, lax := c.publisher(PublisherConfig{Shared: settings.Shared{Logger: refused}}), c.publisher(PublisherConfig{Shared: settings.Shared{Logger: logged}, AllowLossyTopics: true})
	for setting, row := range map[string]struct{ value, want string }{
		"retention.ms":      {"604800000", "retention.ms=604800000; set it to -1"},
		"retention.bytes":   {"1000000", "retention.bytes=1000000; set it to -1"},
		"cleanup.policy":    {"compact", "cleanup.policy=compact; set it to delete"},
		"max.message.bytes": {"1048588", "max.message.bytes=1048588; set it to " + room},
		"":                  {},
	} {
		entries := maps.Clone(sound)
		if setting != "" {
			entries[setting] = row.value
		}
		for _, topic := range []string{c.topic + setting + ".dlq", c.topic + setting + ".billing.retry.5s"} {
			c.create(topic, 1, entries)
			before, err := describeTopic(c.admin, topic)
			testkit.NoError(t, err)
			err = strict.InitializeTopicsFor(c.topic, topic)
			if setting == "" && err != nil || setting != "" && (err == nil || !strings.Contains(err.Error(), strconv.Quote(topic)) ||
				!strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "PublisherConfig.AllowLossyTopics")) {
				t.Errorf("%q: %v", setting, err)
			}
			if lines := refused.Errors(); len(lines) > 0 {
				t.Errorf("%q: logged %v", setting, lines)
			}
			told := len(logged.Errors())
			if err := lax.InitializeTopicsFor(c.topic, topic); err != nil || !strings.Contains(fmt.Sprint(logged.Errors()[told:]), row.want) {
				t.Errorf("%q accepted: %v, logged %v", setting, err, logged.Errors()[told:])
			}
			testkit.Returns(t, before)(describeTopic(c.admin, topic))
		}
	}
}

// Feature D5: a retention of more than 100 years, or of more than an exbibyte, loses nothing. Any other limit is a
// flaw.
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
		if flaws := s.flaws(topicSettings{}); len(flaws) != row.flaws {
			t.Errorf("%s ms, %s bytes: %q", row.ms, row.bytes, flaws)
		}
	}
}

// Features D5, D16: a source whose largest letter no request has room for is an error at start-up: the broker would cut
// the connection each time.
func TestLetterLargerThanRequest(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	large := c.topic + "-large"
	c.create(large, 1, map[string]string{"max.message.bytes": strconv.Itoa(100 << 20)})
	err := c.publisher(PublisherConfig{Sarama: sends(200 << 20)}).InitializeTopicsFor(large, large+".dlq")
	if err == nil || !strings.Contains(err.Error(), large) || !strings.Contains(err.Error(), "socket.request.max.bytes=104857600") ||
		!strings.Contains(err.Error(), "lower the topic's max.message.bytes by 81920") {
		t.Error(err)
	}
	msg := message.NewMessage("1", bytes.Repeat([]byte("x"), 101<<20))
	testkit.Is(t, c.publisher(PublisherConfig{Sarama: sends(200 << 20)}).Publish(c.topic, msg), classify.ErrTooLarge)
}

// Feature D5: a publisher that would itself refuse letters of the source's largest messages says so at start-up, and a
// topic that cannot be created is an error that says what to do.
func TestInitializeTopicsErrors(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	large := c.topic + "-large"
	c.create(large, 1, map[string]string{"max.message.bytes": "5000000"})
	err := c.publisher(PublisherConfig{}).InitializeTopicsFor(large, large+".dlq")
	if err == nil || !strings.Contains(err.Error(), large) || !strings.Contains(err.Error(), "set it to 5065536") {
		t.Error(err)
	}
	err = c.publisher(PublisherConfig{}).initializeTopic(c.admin, c.topic, c.topic+".dlq", topicSettings{partitions: 1, replicas: 30})
	if err == nil || !strings.Contains(err.Error(), c.topic+".dlq") || !strings.Contains(err.Error(), "retention.ms=-1") || !errors.Is(err, sarama.ErrInvalidReplicationFactor) {
		t.Error(err)
	}
	testkit.Says(t, c.publisher(PublisherConfig{}).InitializeTopics("not a topic's name"), "not a topic's name")
	testkit.NoError(t, c.publisher(PublisherConfig{}).InitializeTopics())
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
			if err := errors.Join(pub.InitializeTopicsFor(c.topic, dlq), pub.Publish(dlq, message.NewMessage("", nil))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Feature D5, promise P1: a letter is confirmed by as many replicas as its source asks for, as far as the topic has
// them. An existing topic that asks for fewer is an error in the log, with the remedy. It is not changed, and letters
// are published to it.
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
	pub := c.publisher(PublisherConfig{Shared: settings.Shared{Logger: logged}})
	if err := pub.InitializeTopicsFor(source, strong); err != nil || len(logged.Errors()) > 0 {
		t.Errorf("%v, logged %v", err, logged.Errors())
	}
	testkit.NoError(t, pub.InitializeTopicsFor(source, weak))
	for _, part := range []string{"event:topic_weak", weak, "min.insync.replicas=1", "set it to 2", "more replicas than 1"} {
		if !strings.Contains(fmt.Sprint(logged.Errors()), part) {
			t.Errorf("the log lacks %q: %v", part, logged.Errors())
		}
	}
	wanted := topicSettings{replicas: 3, minInSync: 2}
	if value := wanted.detail().ConfigEntries[minInSyncReplicas]; value == nil || *value != "2" {
		t.Errorf("a created topic has %s %v", minInSyncReplicas, value)
	}
	testkit.NoError(t, pub.InitializeTopicsFor(source, made))
	if found, err := describeTopic(c.admin, made); err != nil || found.minInSync != 1 {
		t.Errorf("a topic of one replica is %+v, %v", found, err)
	}
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
	if found, err := describeTopic(c.admin, dlq); err != nil || found.partitions != 6 {
		t.Errorf("the topic is %+v, %v", found, err)
	}
	logged := &testkit.Log{}
	guessed := c.topic + "-guessed.dlq"
	c.deleteLater(guessed)
	if err := c.publisher(PublisherConfig{Shared: settings.Shared{Logger: logged}}).InitializeTopicsFor(c.topic+"-missing", guessed); err != nil {
		t.Fatal(err)
	}
	lines := logged.Lines(watermill.InfoLogLevel, "")
	if n := len(lines); n != 2 || lines[1].Fields[logging.EventName] != "topic_guessed" || lines[1].Fields["source"] != c.topic+"-missing" {
		t.Errorf("the log has %v", lines)
	}
}
