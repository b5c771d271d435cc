package poison_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/poison"
)

var (
	stageDue   = time.Date(2026, 3, 1, 12, 0, 5, 123456789, time.UTC)
	stageTried = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func stagedBy(t testing.TB, config poison.QueueConfig, msg *message.Message, failure *classify.Failure, stage deadletter.Stage) *message.Message {
	t.Helper()
	queue := testkit.Must(poison.NewQueue(testkit.Nowhere{}, config))
	call := chain.Keep(msg)
	defer call.Release()
	return hidden.Of(queue).ForStage(call.Original(), failure, stage.Number, stage.DueAt, stage.HoldUntil)
}

// failedTimes is a failure of some attempts, the last of them at tried.
func failedTimes(n int, tried time.Time, text string) *classify.Failure {
	f := &classify.Failure{}
	for range n {
		attempts.Add(f, classify.Transient(errorText(text)), classify.Verdict{Class: classify.ClassTransient}, tried)
	}
	return f
}

type errorText string

func (e errorText) Error() string { return string(e) }

// Feature R10, promise P2: a message goes into a stage with its id, payload and metadata, and its story beside them;
// out of it the story goes on, so that a letter tells all of it and its original is what once arrived.
func TestStagedTellsTheHistory(t *testing.T) {
	msg := message.NewMessage("1", []byte("payload"))
	msg.Metadata.Set("tenant", "acme")
	config := poison.QueueConfig{Node: "one", Origin: func(*message.Message) poison.Origin {
		return poison.Origin{Topic: "orders", Partition: "7", Offset: "42", Key: []byte("key")}
	}}
	first := stagedBy(t, config, msg, failedTimes(2, stageTried, "first"), deadletter.Stage{Number: 1, DueAt: stageDue})
	testkit.Require(t, first.UUID == "1" && string(first.Payload) == "payload" && first.Metadata["tenant"] == "acme" &&
		len(msg.Metadata) == 1, "staged %+v, message %v", first, msg.Metadata)
	testkit.Equal(t, "stage", inside.Poison.StageOf(first), (deadletter.Stage{Number: 1, DueAt: stageDue}))
	first.SetContext(chain.WithReentry(context.Background(), &chain.Reentry{Handler: "billing", Stage: 1}))
	config.Origin = func(*message.Message) poison.Origin {
		return poison.Origin{Topic: "orders", Partition: "0", Offset: "9"}
	}
	hold := stageDue.Add(time.Minute)
	second := stagedBy(t, config, first, failedTimes(1, stageTried.Add(time.Minute), "second"), deadletter.Stage{Number: 2, DueAt: stageDue.Add(time.Hour), HoldUntil: hold})
	got := inside.Poison.StageOf(second)
	testkit.Check(t, got == (deadletter.Stage{Number: 2, DueAt: stageDue.Add(time.Hour), HoldUntil: hold}),
		"stage %+v", got)
	l := poison.Read(second)
	testkit.Check(t, l.Failure.Attempts == 3 && len(l.Failure.History) == 3 &&
		l.Failure.FirstFailedAt.Equal(stageTried) && l.Failure.LastFailedAt.Equal(stageTried.Add(time.Minute)) &&
		l.Failure.Description == "second" && l.Failure.Node == "one", "failure %+v", l.Failure)
	testkit.Check(t, len(l.Original.Metadata) == 1 && l.Original.Metadata["tenant"] == "acme",
		"original %v", l.Original.Metadata)
}

// Decision 1: attempts that a message claims without having come out of a stage are not its own.
func TestStagedBelievesNoClaim(t *testing.T) {
	msg := message.NewMessage("1", nil)
	msg.Metadata = message.Metadata{poison.KeyAttempts: "99", poison.KeyFirstFailedAt: "2001-01-01T00:00:00Z", poison.KeyRetryStage: "3", poison.KeyRetryHoldUntil: "9999-01-01T00:00:00Z"}
	l := poison.Read(stagedBy(t, poison.QueueConfig{}, msg, failedTimes(1, stageTried, "x"), deadletter.Stage{Number: 1, DueAt: stageDue}))
	testkit.Check(t, l.Failure.Attempts == 1 && l.Failure.FirstFailedAt.Equal(stageTried), "%+v", l.Failure)
}

// Feature D6: what a stage adds is bounded, says first what the stage needs, and carries no stack.
func TestStagedIsBounded(t *testing.T) {
	long := strings.Repeat("down and out ", 1000)
	msg := message.NewMessage("1", nil)
	failure := failedTimes(30, stageTried, long)
	failure.Err = safecall.Panicked(long)
	failure.Verdict.Reason, failure.Verdict.Description = strings.Repeat("r", 500), long
	staged := stagedBy(t, poison.QueueConfig{}, msg, failure, deadletter.Stage{Number: 2, DueAt: stageDue, HoldUntil: stageDue})
	size := 0
	for key, value := range staged.Metadata {
		size += len(key) + len(value)
	}
	if inside.Poison.StageOf(staged).Number != 2 || !inside.Poison.StageOf(staged).HoldUntil.Equal(stageDue) || staged.Metadata[poison.KeyAttempts] != "30" {
		t.Errorf("%d bytes: %v", size, staged.Metadata)
	}
	if staged.Metadata[poison.KeyFailureStack] != "" || len(staged.Metadata[poison.KeyFailureDescription]) > 256 || size > 6<<10 {
		t.Errorf("%d bytes: %v", size, staged.Metadata)
	}
}

type valueKey struct{}

// A stage's message is published on behalf of the one that failed: with the values of its context, and without its end.
func TestStagedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), valueKey{}, "transaction"))
	cancel()
	msg := message.NewMessageWithContext(ctx, "1", nil)
	staged := stagedBy(t, poison.QueueConfig{}, msg, failedTimes(1, stageTried, "x"), deadletter.Stage{Number: 1, DueAt: stageDue})
	testkit.Check(t, staged.Context().Err() == nil && staged.Context().Value(valueKey{}) == "transaction",
		"%v, %v", staged.Context().Err(), staged.Context().Value(valueKey{}))
}

// The contract: values read back are hostile; one that cannot be is absent.
func TestStageOfGarbage(t *testing.T) {
	for _, value := range []string{"", "x", "-1", "1.5", "99999999999999999999", "\x00", "１"} {
		msg := message.NewMessage("1", nil)
		for _, key := range []string{poison.KeyRetryStage, poison.KeyRetryDueAt, poison.KeyRetryHoldUntil} {
			msg.Metadata.Set(key, value)
		}
		testkit.Equal(t, value, inside.Poison.StageOf(msg), (deadletter.Stage{}))
	}
}

// Decision 3: a letter that is brought back tells of no stage: it begins anew.
func TestRedrivenLeavesItsStage(t *testing.T) {
	msg := message.NewMessage("1", nil)
	staged := stagedBy(t, poison.QueueConfig{}, msg, failedTimes(1, stageTried, "x"), deadletter.Stage{Number: 2, DueAt: stageDue, HoldUntil: stageDue})
	back := poison.Read(staged).Redriven("me", "campaign", stageDue)
	testkit.Equal(t, "", inside.Poison.StageOf(back), (deadletter.Stage{}))
}

// metered is as Watermill's metrics decorator, which has the publisher in an unexported field.
type metered struct{ pub message.Publisher }

func (m metered) Publish(topic string, messages ...*message.Message) error {
	return m.pub.Publish(topic, messages...)
}
func (m metered) Close() error { return m.pub.Close() }

// makes is a publisher that makes topics.
type makes struct {
	message.Publisher
	made []string
}

func (m *makes) InitializeTopicsFor(source string, topics ...string) error {
	m.made = append(append(m.made, source+":"), topics...)
	return nil
}

func (m *makes) InitializeTopics(...string) error { return errors.New("without a source") }

// Feature D5: a publisher's topics are made through decorators; one that hides it is refused at construction, before
// the first letter finds out, and goes with WithInitializer.
func TestInitializerInsideOfADecorator(t *testing.T) {
	m := &makes{Publisher: gochannel.NewGoChannel(gochannel.Config{}, nil)}
	transformed := testkit.Must(message.MessageTransformPublisherDecorator(func(*message.Message) {})(m))
	for name, c := range map[string]struct {
		pub  message.Publisher
		made int
		err  string
	}{
		"Watermill's transform":      {transformed, 5, ""},
		"metrics":                    {metered{m}, 0, "hides the *poison_test.makes inside"},
		"metrics in a transform":     {struct{ message.Publisher }{metered{transformed}}, 0, "poison.WithInitializer"},
		"metrics, with":              {poison.WithInitializer(metered{m}, m), 5, ""},
		"metrics, with, decorated":   {struct{ message.Publisher }{poison.WithInitializer(metered{m}, m)}, 5, ""},
		"metrics, topics exist":      {poison.WithInitializer(metered{m}, poison.TopicsExist), 0, ""},
		"metrics of one that cannot": {metered{m.Publisher}, 0, ""},
		"with nil":                   {poison.WithInitializer(metered{m}, nil), 0, "the initializer is nil"},
		"nil with":                   {poison.WithInitializer(nil, m), 0, "the publisher is nil"},
	} {
		m.made = nil
		queue, err := poison.NewQueue(c.pub, poison.QueueConfig{})
		if err == nil {
			_, fallback := poison.NewQueue(m, poison.QueueConfig{Fallbacks: []poison.Sink{{Publisher: c.pub}}})
			err = errors.Join(fallback, hidden.Of(queue).Initialize("orders", ""), destination.Initialize(c.pub, "orders", "orders.other"))
		} else if again := destination.Initialize(c.pub, "orders", "x"); again == nil {
			t.Errorf("%s: NewQueue says %v, InitializeFor nothing", name, err)
		}
		testkit.Check(t, (err != nil) == (c.err != "") && (err == nil || strings.Contains(err.Error(), c.err)) &&
			len(m.made) == c.made, "%s: made %q, %v", name, m.made, err)
		const notified = "orders: orders.dlq orders.invalid orders: orders.other"
		testkit.Check(t, c.made == 0 || strings.Join(m.made, " ") == notified, "%s: made %q", name, m.made)
	}
}

// Conventions: nil arguments are errors, or tell nothing, and never a panic.
func TestNilArguments(t *testing.T) {
	ps := gochannel.NewGoChannel(gochannel.Config{}, nil)
	queue := testkit.Must(poison.NewQueue(ps, poison.QueueConfig{}))
	boom := errors.New("boom")
	err := queue.Place(nil, boom)
	testkit.Check(t, errors.Is(err, boom) && strings.Contains(err.Error(), "nil"), "Place without a message: %v", err)
	testkit.Check(t, queue.Place(message.NewMessage("m", nil), nil) != nil, "Place without an error")
	testkit.Check(t, testkit.Err(queue.InitializeOnSubscribe(nil)) != nil, "InitializeOnSubscribe")
	testkit.Check(t, destination.Initialize(nil, "orders", "orders.dlq") != nil, "InitializeFor")
	_, err = poison.Decode(nil)
	testkit.Check(t, errors.Is(err, poison.ErrNotLetter), "Decode %v", err)
	testkit.Check(t, !inside.Poison.IsLetter(nil) && poison.Read(nil).Original == nil &&
		inside.Poison.StageOf(nil) == (deadletter.Stage{}), "nothing tells something")
	testkit.Check(t, hidden.Of(queue).CheckPublisher(nil) == nil && hidden.Of(queue).CheckPublisher(ps) != nil,
		"CheckPublisher")
	testkit.Check(t, (poison.Letter{}).Encode() != nil, "Encode")
}
