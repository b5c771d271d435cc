package poison

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/naming"
)

// Features D1, D6, promise P2: whatever is under the keys, what is read and written again keeps to its bounds.
func FuzzDecode(f *testing.F) {
	f.Add("id", []byte("payload"), KeyAttempts, "99999999999", KeyRedriveCount, "-1")
	f.Add("", []byte(nil), KeyOriginalTopic, "\xff\x00", KeyOriginalKey+Base64Suffix, "====")
	f.Add("a\x00b", []byte{0xff}, KeyAttemptHistory, "2026-01-01T00:00:00Z transient x\n", KeyLastFailedAt, "9999-99-99")
	f.Add("id", []byte("{}"), "reason_poisoned", "boom", "topic_poisoned", "orders")
	f.Add("id", []byte("{}"), "mine", "\xfe", KeyFailureClass, "permanent")
	f.Add("", []byte("{}"), springTopic, "orders", "kafka_dlt-original-offset", "\x00\x00\x00\x00\x00\x00\x00\xc8")
	f.Add("", []byte("{}"), springException, "java.lang.Error", springAttempts, "\x00\x00\x00\x04")
	f.Add("", []byte("{}"), springRetryTopic, "orders", springDue, "\x7f\xff\xff\xff\xff\xff\xff\xff")
	f.Add("", []byte("{}"), connectTopic, "orders", "__connect.errors.partition", "-7")
	f.Add("", []byte("{}"), streamsTopic, "orders", "__streams.errors.offset", "-1")
	f.Add("", []byte(nil), shareTopic, "orders", "__dlq.errors.delivery.count", "32768")
	f.Add("", []byte("{}"), keyDeaths, `[{"count":2,"queue":"orders","reason":"rejected","routing-keys":["o"],"time":"2023-11-14T22:13:20Z"}]`, "x-first-death-queue", "payments")
	f.Add("", []byte("{}"), keyDeaths, `[{"queue":"orders","reason":"expired","count":-1e99},[],{"queue":7}]`, KeyRedriveCount, "2")
	f.Add("", []byte("{}"), springAttempts, strings.Repeat("x", 20<<10), "__connect.errors.stage", "TASK_PUT")
	f.Fuzz(func(t *testing.T, id string, payload []byte, key1, value1, key2, value2 string) {
		msg := message.NewMessage(id, payload)
		msg.Metadata[KeyFailureClass] = "transient"
		msg.Metadata[key1], msg.Metadata[key2] = value1, value2
		if isForeign(msg.Metadata) || len(deathsOf(msg.Metadata)) > 0 { // what others wrote is read only where we did not
			delete(msg.Metadata, KeyFailureClass)
		}
		l, err := Decode(msg)
		testkit.Require(t, err == nil, "a letter by its class or another's mark does not decode: %v", err)
		own := without(msg.Metadata, writersOfLetter(msg.Metadata))
		testkit.Require(t, l.Failure.Attempts >= 0 && l.Redrive.Count >= 0 && l.Failure.Attempts <= 1_000_000 &&
			l.Redrive.Count <= 1_000_000, "unbounded counts: %+v", l)
		again := l.Encode()
		testkit.Require(t, again.UUID == id && bytes.Equal(again.Payload, payload), "id or payload changed")
		added := 0
		for key, value := range again.Metadata {
			if _, producers := own[key]; !producers {
				added += len(key) + len(value)
			} else if msg.Metadata[key] != value {
				t.Fatalf("the producer's %q changed from %q to %q", key, msg.Metadata[key], value)
			}
		}
		testkit.Require(t, added <= MaxAdded, "%d bytes added", added)
		for key := range own {
			testkit.Require(t, again.Metadata[key] == msg.Metadata[key] || isOrder(key),
				"the producer's %q is lost", key)
		}
		testkit.Require(t, isLetter(again), "encoded again it is no letter")
		second, err := Decode(again)
		testkit.Require(t, err == nil, "what was encoded does not decode: %v", err)
		o := l.Origin
		testkit.Require(t, !strings.HasPrefix(o.Partition, "-") || msg.Metadata[KeyOriginalPartition] != "",
			"believed %+v", o)
		testkit.Require(t, second.Origin.Topic == l.Origin.Topic && second.Redrive.Count == l.Redrive.Count &&
			second.Failure.Attempts == l.Failure.Attempts, "not stable:\n%+v\n%+v", l, second)
	})
}

// strictSink takes letters for topics that were made, and while it is down makes and takes none.
type strictSink struct {
	sink
	mu     sync.Mutex
	made   []string
	asked  int
	down   bool
	denied bool // it may not make topics, and has all of them
}

func (s *strictSink) InitializeTopics(topics ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked++; s.down || s.denied {
		return errors.New("not now")
	}
	s.made = append(s.made, topics...)
	return nil
}

func (s *strictSink) Publish(topic string, messages ...*message.Message) error {
	s.mu.Lock()
	missing := s.down || !s.denied && !slices.Contains(s.made, topic)
	s.mu.Unlock()
	if missing {
		return fmt.Errorf("no topic %q", topic)
	}
	return s.sink.Publish(topic, messages...)
}

// perHandler names dead-letter topics after the handler too.
var perHandler = naming.Scheme{DeadLetter: "{topic}.{handler}.dlq", Invalid: "{topic}.{handler}.invalid"}

// Feature D5, promise P4: a topic whose name was not known at the start is made before its first letter, and once.
func TestFirstLetterMakesTopic(t *testing.T) {
	for name, scheme := range map[string]naming.Scheme{"handler": perHandler, "class": {DeadLetter: "{topic}.{class}"}} {
		t.Run(name, func(t *testing.T) {
			dead, last := &strictSink{}, &strictSink{}
			config := QueueConfig{Naming: scheme, Fallbacks: []Sink{{Publisher: last, Topic: "last"}}}
			r := start(t, "orders", dead, config, func(msg *message.Message) ([]*message.Message, error) {
				return failing(classify.Transient(errors.New(msg.UUID)))(msg)
			})
			topic := scheme.DeadLetterTopic(naming.Source{Topic: "orders", Handler: "billing", Class: classify.ClassTransient})
			testkit.Check(t, slices.Contains(dead.made, topic) == (name == "class"),
				"at the start there are %v", dead.made)
			for i := range 5 {
				r.publish(message.NewMessage(fmt.Sprint(i), nil))
				eventually(t, "it is there", func() bool { return dead.topics() == fmt.Sprint(topic, ":", i+1) })
			}
			testkit.Check(t, last.topics() == "" && slices.Contains(last.made, "last"),
				"the fallback made %v and has %q", last.made, last.topics())
			dead.mu.Lock()
			defer dead.mu.Unlock()
			n := len(slices.DeleteFunc(dead.made, func(made string) bool { return made != topic }))
			testkit.Check(t, n == 1, "made %d times", n)
		})
	}
}
