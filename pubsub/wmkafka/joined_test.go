package wmkafka

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

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
		d.eventually("it is tried again and again", func() bool { return dialer.refusals() > tried+8 })
		dialer.set(false, false)
		d.eventually("its end has a line", func() bool { return ends() == outage+1 })
		testkit.Equal(t, "lines of outages", begins(), outage+1)
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
	again := func(log *testkit.Log) []testkit.Line { return linesOf(log, watermill.InfoLogLevel, "session_again") }
	testkit.Check(t, len(again(live)) == 0 && len(again(staged)) == 0, "the start has a line")
	d.subscribe(d.subscriber(SubscriberConfig{}))
	d.consume(d.stages(), d.topic+".retry.1s")
	for group, log := range map[string]*testkit.Log{d.cluster.group: live, d.group: staged} {
		d.eventually("the rebalance has a line", func() bool { return len(again(log)) > 0 })
		fields := again(log)[0].Fields
		testkit.Check(t, fields[logging.ConsumerGroup] == group && fields["lasted"] != nil, "%s: %v", group, fields)
	}
}

// Promise P4: stages in the group of a live subscriber would wait for good. The start is an error that names the group
// and the remedy: in one process whichever comes first, and if the subscriber is in another process, as soon as the
// group has it.
func TestStagesInGroupOfSubscriber(t *testing.T) {
	t.Parallel()
	begin := func(d *desk) error { return testkit.Err(d.begin(d.stages(), d.topic)) }
	for name, join := range map[string]func(*desk) error{
		"the subscriber first": func(d *desk) error {
			d.subscribe(d.subscriber(SubscriberConfig{}))
			return begin(d)
		},
		"the stages first": func(d *desk) error {
			testkit.NoError(d, begin(d))
			return testkit.Err(d.subscriber(SubscriberConfig{}).Subscribe(d.Context(), d.topic))
		},
		"another process": func(d *desk) error {
			d.subscribe(d.stock(kafka.SubscriberConfig{}))
			d.eventually("it is a member", func() bool { return d.members() == 1 })
			return begin(d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(newCluster(t))
			d.group = d.cluster.group
			err := join(d)
			testkit.Says(t, err, d.group)
			testkit.Says(t, err, "give NewStages a group of its own")
		})
	}
}
