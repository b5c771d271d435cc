package stages_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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
	const s5, minute, hour = 5 * time.Second, time.Minute, time.Hour
	is := func(text string) func() string { return func() string { return text } }
	at := func(d time.Duration) func() string { return func() string { return in(d) } }
	year9999 := is("9999-12-31T23:59:59Z")
	for name, row := range map[string]struct {
		delay, maxHold time.Duration
		due, holdUntil func() string
		from, to       time.Duration // when it is handled
	}{
		"no due time":                       {delay: s5},
		"due":                               {delay: s5, due: at(3 * time.Second), from: 3 * time.Second, to: 3 * time.Second},
		"past":                              {delay: s5, due: at(-3 * time.Second)},
		"garbage":                           {delay: s5, due: is("soon"), from: s5, to: s5},
		"year 9999":                         {delay: s5, due: year9999, from: s5, to: s5},
		"clock an hour ahead":               {delay: s5, due: at(hour + s5), from: s5, to: s5},
		"clock an hour behind":              {delay: s5, due: at(s5 - hour)},
		"short hold: due":                   {delay: hour, maxHold: minute, due: at(hour), from: hour, to: hour},
		"short hold: held until":            {hour, minute, at(hour), at(minute), hour, hour},
		"short hold: hold year 9999":        {hour, minute, at(hour), year9999, hour, hour},
		"short hold: year 9999":             {delay: hour, maxHold: minute, due: year9999, to: 2 * minute},
		"short hold: clock an hour ahead":   {delay: hour, maxHold: minute, due: at(2 * hour), from: hour, to: 2 * hour},
		"short hold: clock an hour behind":  {delay: hour, maxHold: minute, due: at(0)},
		"short hold: due, held until later": {hour, minute, at(minute / 2), at(minute), minute / 2, minute / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, n := newStaging(t, stages.Config{Stages: stages.Delays(row.delay), Jitter: -1}, nil), newNote()
			s.broker.redelivers = 2 * row.maxHold
			s.handle("billing", "orders", failTimes(n, 0))
			s.run()
			topic := naming.Scheme{}.StageTopic(naming.Source{Topic: "orders", Handler: "billing", Delay: row.delay})
			metadata := map[string]string{}
			for key, value := range map[string]func() string{
				poison.KeyRetryHoldUntil: row.holdUntil, poison.KeyRetryDueAt: row.due,
			} {
				if value != nil {
					metadata[key] = value()
				}
			}
			s.staged(topic, "1", metadata)
			time.Sleep(3 * hour)
			s.stop()
			got := n.of("1")
			testkit.Check(t, len(got) == 1 && got[0].at >= row.from && got[0].at <= row.to+time.Second &&
				len(s.broker.left()) == 0, "%s: handled %v, want between %s and %s", name, got, row.from, row.to)
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

// Feature R3, promise P4: a stage that outlasts the ack deadline of its subscriber goes round, a bounded number of
// times, is reported once, and loses nothing, also if a message comes when its deadline has all but passed.
func TestStageAckDeadline(t *testing.T) {
	for _, row := range []struct {
		first, deadline time.Duration // of the first message that comes to the stage, and of the others
		most            int
	}{
		{30 * time.Second, 30 * time.Second, 60}, {3 * time.Second, 3 * time.Second, 450},
		{100 * time.Millisecond, 100 * time.Millisecond, 4}, {-time.Second, time.Minute, 80},
		{time.Nanosecond, time.Minute, 80}, {3 * time.Millisecond, time.Minute, 80}, {time.Second, time.Minute, 80},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, n := &lines{}, newNote()
			s := newStaging(t, stages.Config{Stages: stages.Delays(10 * time.Minute), Jitter: -1}, log)
			s.broker.deadline = func(topic string) (left time.Duration) {
				if topic == "orders" {
					return row.deadline
				}
				left, row.first = row.first, row.deadline
				return left
			}
			s.handle("billing", "orders", failTimes(n, 1))
			s.passes(time.Hour, "1", "2", "3", "4")
			for _, id := range []string{"1", "2", "3", "4"} {
				got := n.of(id)
				testkit.Require(t, len(got) == 2, "%+v: %s: handled %v", row, id, got)
				took := got[1].at - got[0].at
				testkit.Check(t, took >= 10*time.Minute && took <= 11*time.Minute, "%+v: %s: after %s", row, id, took)
			}
			times, notified := s.broker.times("orders.billing.retry.10m"), log.count("ack deadline")
			testkit.Check(t, times <= row.most && times >= row.most/4 && notified == 1 && len(s.letters.all()) == 0,
				"%+v: published %d times, told %d times, letters %v", row, times, notified, s.letters.all())
		})
	}
}
