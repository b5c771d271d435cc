package wmkafka

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/due"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/settings"
)

// linesOf are the lines of an event.
func linesOf(log *testkit.Log, level watermill.LogLevel, event string) (lines []testkit.Line) {
	for _, line := range log.Lines(level, "") {
		if line.Fields[logging.EventName] == event {
			lines = append(lines, line)
		}
	}
	return lines
}

// refusals is how many connections were refused.
func (f *faulty) refusals() int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.refused
}

// Feature O5: an outage of the brokers is one Error line of the stages when it begins, however often they try to join,
// and one Info line when it ends. Their messages are taken after it.
func TestStagesOutageLines(t *testing.T) {
	t.Parallel()
	d := newDesk(newCluster(t))
	dialer, log := &faulty{}, &testkit.Log{}
	waiting := d.stagesWith(SubscriberConfig{Sarama: dialer.into, Shared: settings.Shared{Logger: log}})
	pub := d.publisher(PublisherConfig{})
	d.consume(waiting, d.topic)
	d.send(pub, d.topic, "before")
	d.untilTaken(1)
	for outage := range 2 {
		dialer.set(false, true)
		begins := func() int { return len(linesOf(log, watermill.ErrorLogLevel, "stages_not_joined")) }
		ends := func() int { return len(linesOf(log, watermill.InfoLogLevel, "stages_joined")) }
		d.eventually("the outage has a line", func() bool { return begins() == outage+1 })
		tried := dialer.refusals()
		d.eventually("it is tried again and again", func() bool { return dialer.refusals() > tried+20 })
		dialer.set(false, false)
		d.eventually("its end has a line", func() bool { return ends() == outage+1 })
		if n := begins(); n != outage+1 {
			t.Errorf("%d lines of %d outages", n, outage+1)
		}
	}
	d.send(pub, d.topic, "after")
	d.untilTaken(2)
	end := linesOf(log, watermill.InfoLogLevel, "stages_joined")[0]
	testkit.Check(t, end.Fields["group"] == d.group && end.Fields["lasted"] != nil, "the end says %v", end)
}

// Feature O5: a rebalance is an Info line that says how long no message was delivered, of a subscriber and of stages.
// The start is none.
func TestRebalanceLines(t *testing.T) {
	t.Parallel()
	d := newDesk(newCluster(t))
	live, staged := &testkit.Log{}, &testkit.Log{}
	d.subscribe(d.subscriber(SubscriberConfig{Shared: settings.Shared{Logger: live}}))
	d.create(d.topic+".retry.1s", 2, nil)
	d.consume(d.stagesWith(SubscriberConfig{Shared: settings.Shared{Logger: staged}}), d.topic+".retry.1s")
	d.eventually("both are members", func() bool { return d.members() == 1 && d.members(d.group) == 1 })
	for name, log := range map[string]*testkit.Log{"live": live, "staged": staged} {
		if lines := linesOf(log, watermill.InfoLogLevel, "session_again"); len(lines) > 0 {
			t.Errorf("%s: the start has the line %v", name, lines[0])
		}
	}
	d.subscribe(d.subscriber(SubscriberConfig{}))
	d.consume(d.stages(), d.topic+".retry.1s")
	for name, row := range map[string]struct {
		log   *testkit.Log
		group string
	}{"live": {live, d.cluster.group}, "staged": {staged, d.group}} {
		var lines []testkit.Line
		d.eventually(name+": the rebalance has a line", func() bool {
			lines = linesOf(row.log, watermill.InfoLogLevel, "session_again")
			return len(lines) > 0
		})
		if lines[0].Fields[logging.ConsumerGroup] != row.group || lines[0].Fields["lasted"] == nil {
			t.Errorf("%s: %v", name, lines[0])
		}
	}
}

// Promise P4: stages in the group of a live subscriber would wait for good. The start is an error that names the group
// and the remedy: in one process whichever comes first, and if the subscriber is in another process, as soon as the
// group has it.
func TestStagesInGroupOfSubscriber(t *testing.T) {
	t.Parallel()
	stage := func(d *desk) error {
		sub, err := d.stages()(d.topic, d.topic)
		testkit.NoError(d, err)
		ctx, cancel := context.WithCancel(context.Background())
		d.Cleanup(cancel)
		out, err := sub.Subscribe(due.With(ctx, due.Stage{
			Until: func(_ *message.Message, at time.Time) time.Time { return at },
			Take:  func(msg *message.Message) { msg.Ack() },
		}), d.topic)
		if err == nil {
			d.cleanup(func() error { cancel(); <-out; return nil })
		}
		return err
	}
	refused := func(t *testing.T, err error, group string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), group) || !strings.Contains(err.Error(), "give NewStages a group of its own") {
			t.Errorf("stages and a subscriber in one group: %v", err)
		}
	}
	t.Run("the subscriber first", func(t *testing.T) {
		t.Parallel()
		d := newDesk(newCluster(t))
		d.group = d.cluster.group
		d.subscribe(d.subscriber(SubscriberConfig{}))
		refused(t, stage(d), d.group)
	})
	t.Run("the stages first", func(t *testing.T) {
		t.Parallel()
		d := newDesk(newCluster(t))
		d.group = d.cluster.group
		testkit.NoError(t, stage(d))
		_, err := d.subscriber(SubscriberConfig{}).Subscribe(t.Context(), d.topic)
		refused(t, err, d.group)
	})
	t.Run("another process", func(t *testing.T) {
		t.Parallel()
		d := newDesk(newCluster(t))
		d.group = d.cluster.group
		d.subscribe(d.stock(kafka.SubscriberConfig{}))
		d.eventually("it is a member", func() bool { return d.members() == 1 })
		refused(t, stage(d), d.group)
	})
}
