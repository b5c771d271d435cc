package stages_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

// staged publishes a message to a stage topic as another process would.
func (s *staging) staged(topic, id string, metadata map[string]string) {
	s.Helper()
	msg := newMessage(id)
	for key, value := range metadata {
		msg.Metadata.Set(key, value)
	}
	testkit.NoError(s, s.broker.Publish(topic, msg))
}

func in(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }

// Feature R5, and the contract that values read back are hostile: whatever the due time says, a message is held for its
// stage's delay at the most, and not handled before a due time that can be true.
func TestStageDueTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		for name, row := range map[string]struct {
			delay, maxHold time.Duration
			due, holdUntil string
			from, to       time.Duration // when it is handled
		}{
			"no due time":                       {delay: 5 * time.Second},
			"due":                               {delay: 5 * time.Second, due: in(3 * time.Second), from: 3 * time.Second, to: 3 * time.Second},
			"past":                              {delay: 5 * time.Second, due: in(-3 * time.Second)},
			"garbage":                           {delay: 5 * time.Second, due: "soon", from: 5 * time.Second, to: 5 * time.Second},
			"year 9999":                         {delay: 5 * time.Second, due: "9999-12-31T23:59:59Z", from: 5 * time.Second, to: 5 * time.Second},
			"clock an hour ahead":               {delay: 5 * time.Second, due: in(hour + 5*time.Second), from: 5 * time.Second, to: 5 * time.Second},
			"clock an hour behind":              {delay: 5 * time.Second, due: in(5*time.Second - hour)},
			"short hold: due":                   {delay: hour, maxHold: time.Minute, due: in(hour), from: hour, to: hour},
			"short hold: held until":            {delay: hour, maxHold: time.Minute, due: in(hour), holdUntil: in(time.Minute), from: hour, to: hour},
			"short hold: hold year 9999":        {delay: hour, maxHold: time.Minute, due: in(hour), holdUntil: "9999-01-01T00:00:00Z", from: hour, to: hour},
			"short hold: year 9999":             {delay: hour, maxHold: time.Minute, due: "9999-12-31T23:59:59Z", from: 0, to: 2 * time.Minute},
			"short hold: clock an hour ahead":   {delay: hour, maxHold: time.Minute, due: in(2 * hour), from: hour, to: 2 * hour},
			"short hold: clock an hour behind":  {delay: hour, maxHold: time.Minute, due: in(0)},
			"short hold: due, held until later": {delay: hour, maxHold: time.Minute, due: in(30 * time.Second), holdUntil: in(time.Minute), from: 30 * time.Second, to: 30 * time.Second},
		} {
			start := time.Now()
			s := newStaging(t, stages.Config{Stages: stages.Delays(row.delay), Jitter: -1}, nil)
			s.broker.redelivers = 2 * row.maxHold
			n := newNote()
			s.handle("billing", "orders", failTimes(n, 0))
			s.run()
			topic := naming.Scheme{}.StageTopic(naming.Source{Topic: "orders", Handler: "billing", Delay: row.delay})
			metadata := map[string]string{poison.KeyRetryHoldUntil: row.holdUntil}
			if row.due != "" {
				metadata[poison.KeyRetryDueAt] = row.due
			}
			shift(metadata, start)
			s.staged(topic, "1", metadata)
			time.Sleep(3 * hour)
			s.stop()
			got := n.of("1")
			if len(got) != 1 || got[0].at < row.from || got[0].at > row.to+time.Second || len(s.broker.left()) != 0 {
				t.Errorf("%s: handled %v, want between %s and %s; %d times published", name, got, row.from, row.to, s.broker.times(topic))
			}
		}
	})
}

// tableMade is when the rows of a table were written, in a bubble: all begin at the same time.
var tableMade = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// shift makes the times of a table those of a row that starts later.
func shift(metadata map[string]string, start time.Time) {
	for key, value := range metadata {
		if at, err := time.Parse(time.RFC3339Nano, value); err == nil && at.Year() > 1990 && at.Year() < 2100 {
			metadata[key] = at.Add(start.Sub(tableMade)).UTC().Format(time.RFC3339Nano)
		}
	}
}

// Feature R5: in a stage that is longer than a message is held, messages that come all the time are late by the
// jitter's amplitude at most: who goes round does not wait behind those that came after it.
func TestStageLatenessWhereMessagesGoRound(t *testing.T) {
	for name, row := range map[string]struct{ delay, maxHold time.Duration }{
		"default":         {10 * time.Minute, 0},
		"many":            {time.Hour, 7 * time.Minute},
		"hold just right": {10 * time.Minute, 11 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStaging(t, stages.Config{Stages: stages.Delays(row.delay)}, nil)
			s.broker.redelivers = 2 * row.maxHold
			n := newNote()
			s.handle("billing", "orders", failTimes(n, 1))
			s.run()
			const count = 100
			for i := range count {
				s.publish("orders", string(rune('A'+i)))
				time.Sleep(row.delay / 30)
			}
			time.Sleep(3 * row.delay)
			s.stop()
			for i := range count {
				got := n.of(string(rune('A' + i)))
				testkit.Require(t, len(got) == 2, "%s: message %d: handled %v", name, i, got)
				if took := got[1].at - got[0].at; took < row.delay || took > row.delay*11/10+100*time.Millisecond {
					t.Errorf("%s: message %d: again after %s", name, i, took)
				}
			}
		})
	}
}

// Feature R5: what is due when its hold ends, after a time without consumers for one, does not go round once more.
func TestStageDueAfterDowntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStaging(t, stages.Config{Stages: stages.Delays(time.Hour), Jitter: -1}, nil)
		s.broker.redelivers = 20 * time.Minute
		n := newNote()
		s.staged("orders.billing.retry.1h", "1", map[string]string{poison.KeyRetryDueAt: in(time.Hour), poison.KeyRetryHoldUntil: in(10 * time.Minute)})
		time.Sleep(3 * time.Hour)
		s.handle("billing", "orders", failTimes(n, 0))
		s.run()
		synctest.Wait()
		testkit.Check(t, len(n.of("1")) == 1 && s.broker.times("orders.billing.retry.1h") == 1,
			"handled %v, published %d times", n.of("1"), s.broker.times("orders.billing.retry.1h"))
		s.stop()
	})
}

// Feature R3: a stage that outlasts the ack deadline of its subscriber goes round, a bounded number of times, is
// reported once, and loses nothing.
func TestStageAckDeadline(t *testing.T) {
	for deadline, most := range map[time.Duration]int{30 * time.Second: 60, 3 * time.Second: 450, 100 * time.Millisecond: 4} {
		synctest.Test(t, func(t *testing.T) {
			log := &lines{}
			s := newStaging(t, stages.Config{Stages: stages.Delays(10 * time.Minute), Jitter: -1}, log)
			s.broker.deadline = deadline
			n := newNote()
			s.handle("billing", "orders", failTimes(n, 1))
			s.passes(time.Hour, "1", "2", "3", "4")
			for _, id := range []string{"1", "2", "3", "4"} {
				if got := n.of(id); len(got) != 2 || got[1].at-got[0].at < 10*time.Minute || got[1].at-got[0].at > 11*time.Minute {
					t.Errorf("%s: handled %v", id, got)
				}
			}
			times := s.broker.times("orders.billing.retry.10m")
			testkit.Check(t, times <= most && times >= most/3, "deadline %s: published %d times", deadline, times)
			told := log.count("ack deadline")
			testkit.Check(t, told == 1 && len(s.letters.all()) == 0, "told %d times, letters %v", told, s.letters.all())
		})
	}
}

// lateContext delivers its messages with hardly any time left, or none, the first times.
type lateContext struct {
	message.Subscriber
	lefts []time.Duration
}

func (l *lateContext) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sub, err := message.MessageTransformSubscriberDecorator(func(msg *message.Message) {
		left := time.Minute
		if len(l.lefts) > 0 {
			left, l.lefts = l.lefts[0], l.lefts[1:]
		}
		ctx, cancel := context.WithTimeout(msg.Context(), left)
		context.AfterFunc(msg.Context(), cancel)
		msg.SetContext(ctx)
	})(l.Subscriber)
	if err != nil {
		return nil, err
	}
	return sub.Subscribe(ctx, topic)
}

// Promise P4: a message that comes when its ack deadline has all but passed does not make its stage spin.
func TestStageAckDeadlineAlmostPassed(t *testing.T) {
	for _, left := range []time.Duration{-time.Second, time.Nanosecond, 3 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			config := stages.Config{Stages: stages.Delays(10 * time.Minute), Jitter: -1}
			b := newBroker()
			config.Publisher = b
			config.Subscriber = func(string, string) (message.Subscriber, error) {
				return &lateContext{Subscriber: b.consumer(), lefts: []time.Duration{left}}, nil
			}
			s := newStaging(t, config, nil)
			s.broker = b
			n := newNote()
			s.handle("billing", "orders", failTimes(n, 1))
			s.passes(time.Hour, "1", "2")
			if got := n.of("2"); len(got) != 2 || got[1].at-got[0].at < 10*time.Minute || got[1].at-got[0].at > 12*time.Minute {
				t.Errorf("%s: handled %v", left, got)
			}
			times := b.times("orders.billing.retry.10m")
			testkit.Check(t, times <= 2*40, "%s: published %d times", left, times)
		})
	}
}
