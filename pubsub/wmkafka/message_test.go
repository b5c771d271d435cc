package wmkafka

import (
	"context"
	"maps"
	"runtime"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

func newAttempt() (a *attempt, endSession context.CancelFunc) {
	session, end := context.WithCancel(context.Background())
	return &attempt{of: &recordContext{Context: session, record: &sarama.ConsumerMessage{Offset: 7}, group: "g"}}, end
}

// Promise P3: a message's context ends with the session and with its own settlement, in whichever order it is asked and
// ended, as a context of package context does.
func TestAttemptEnds(t *testing.T) {
	for _, asked := range []string{"before", "after", "through a derived context"} {
		for _, ends := range []string{"session", "attempt", "both"} {
			t.Run(asked+" "+ends, func(t *testing.T) {
				a, endSession := newAttempt()
				defer endSession()
				testkit.Require(t, a.Err() == nil && (context.Cause(a) == nil || asked != "before"), "it has ended")
				var ctx context.Context = a
				switch asked {
				case "before":
					a.Done()
				case "through a derived context":
					derived, cancel := context.WithCancel(context.WithValue(a, recordContextKey{}, 1))
					defer cancel()
					ctx = derived
				}
				if ends != "attempt" {
					endSession()
				}
				if ends != "session" {
					a.cancel()
					a.cancel()
				}
				select {
				case <-ctx.Done():
				default:
					t.Fatal("it has not ended")
				}
				for _, err := range []error{ctx.Err(), a.Err(), context.Cause(ctx)} {
					testkit.Is(t, err, context.Canceled)
				}
			})
		}
	}
}

// Promise P5: a message costs no goroutine, nor does a context that a handler derives from its own: package context
// finds the cancellable one.
func TestAttemptStartsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 100 {
		a, endSession := newAttempt()
		defer endSession()
		_, cancel := context.WithCancel(context.WithValue(a, recordContextKey{}, 1))
		defer cancel()
	}
	started := runtime.NumGoroutine() - before
	testkit.Check(t, started <= 50, "100 contexts started %d goroutines", started)
}

// Promise P5: what a delivery allocates: the message with its two channels and its map, the delivery with its context,
// and one text of all headers.
func TestAllocDelivery(t *testing.T) {
	record := &sarama.ConsumerMessage{Value: []byte("0000000")}
	for _, name := range []string{"_watermill_message_uuid", "a", "bb", "ccc", "dddd", "eeeee"} {
		record.Headers = append(record.Headers, &sarama.RecordHeader{Key: []byte(name), Value: []byte("a value of some length")})
	}
	s := subscriptionOf(t, SubscriberConfig{}, true)
	s.output = make(chan *message.Message, 1)
	g := newGroup(t, 0)
	defer g.end()
	s.begin(g)
	least := 100.0 // what else runs in the process allocates too
	for range 5 {
		least = min(least, testing.AllocsPerRun(100, func() {
			d := s.deliver(s.tenure.work, record)
			d.send()
			(<-s.output).Ack()
			testkit.Check(t, d.settled(d.of.Done()) == acked, "it is not acked")
			d.cancel()
		}))
	}
	testkit.Check(t, least <= 8, "%v allocations, want at most 8", least)
}

// A message's metadata is a copy: sarama's buffer of the records around it may go. A message with too many headers for
// one text is read as well.
func TestHeadersAreCopied(t *testing.T) {
	for _, long := range []int{1, maxHeaderText} {
		value := []byte(strings.Repeat("v", long))
		record := &sarama.ConsumerMessage{Headers: []*sarama.RecordHeader{
			{Key: []byte("a"), Value: value}, nil, {Key: []byte("empty")}, {Value: []byte("nameless")}, {Key: []byte("z"), Value: []byte("last")},
		}}
		msg := plainMessage(record)
		for _, h := range record.Headers {
			if h != nil {
				clear(h.Key)
				clear(h.Value)
			}
		}
		want := message.Metadata{"a": strings.Repeat("v", long), "empty": "", "": "nameless", "z": "last"}
		testkit.Check(t, maps.Equal(msg.Metadata, want), "%q", msg.Metadata)
	}
}
