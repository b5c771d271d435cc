package poison

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/settings"
)

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
// Names that are known are made at the start, those of all classes.
func TestFirstLetterMakesTopic(t *testing.T) {
	for name, scheme := range map[string]naming.Scheme{"handler": perHandler, "class": {DeadLetter: "{topic}.{class}"}} {
		t.Run(name, func(t *testing.T) {
			dead, last := &strictSink{}, &strictSink{}
			config := QueueConfig{Shared: settings.Shared{Naming: scheme}, Fallbacks: []Sink{{Publisher: last, Topic: "last"}}}
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
