package wmkafka

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/middleware"
	retries "github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/naming"
)

const (
	unconfirmedVariable = "SPILLWAY_WMKAFKA_UNCONFIRMED" // has the live topic, in the process that is killed
	unconfirmed         = 4                              // messages that are on their way at the kill
	first, second       = 10 * time.Millisecond, 20 * time.Millisecond
)

// Features R5, P1: a process is killed after it began to publish messages of one stage to the next, and before any
// confirm: the broker never got them. They are not marked, and after a restart each becomes one dead letter. Another
// stage's message, which is handled since, is the clock: when it is marked, so is all that may be.
func TestStagesKilledBeforeTheConfirm(t *testing.T) {
	t.Parallel()
	if topic := os.Getenv(unconfirmedVariable); topic != "" {
		climb(&cluster{TB: t, brokers: services.Kafka(t), topic: topic})
		return
	}
	c := newCluster(t)
	c.create(clockOf(c.topic), 1, nil) // stages look at their live topics, of which these messages are not
	for _, topic := range []string{c.topic, clockOf(c.topic)} {
		c.deleteLater(stageOf(topic, first), stageOf(topic, second))
	}
	self := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "2m")
	self.Env = append(os.Environ(), unconfirmedVariable+"="+c.topic)
	if said, err := self.CombinedOutput(); err == nil || self.ProcessState.ExitCode() != -1 {
		t.Fatalf("the process was not killed: %v\n%s", err, said)
	}
	d := newDesk(c)
	d.group = groupOf(c.topic)
	if n := d.behind(stageOf(c.topic, first)); n != unconfirmed {
		t.Errorf("of %d messages whose publish was not confirmed, %d are not marked", unconfirmed, n)
	}
	if n := c.size(stageOf(c.topic, second)); n != 0 {
		t.Errorf("the next stage got %d messages", n)
	}

	c.forgetMembers(groupOf(c.topic))
	dead := &sink{}
	c.serve(dead, nil, func(*message.Message, int) error { return errors.New("it fails for good") }, nil)
	c.eventually("all are dead letters", func() bool { return len(dead.Taken()) >= unconfirmed })
	c.eventually("nothing waits", func() bool { return d.behind(stageOf(c.topic, second)) == 0 })
	times := map[string]int{}
	for _, l := range dead.letters(t) {
		times[l.Original.UUID]++
	}
	for _, id := range named("unconfirmed", unconfirmed) {
		if times[id] != 1 {
			t.Errorf("%s is %d dead letters", id, times[id])
		}
	}
}

func clockOf(topic string) string { return topic + "-clock" }
func groupOf(topic string) string { return topic + "-stages" }

func stageOf(topic string, delay time.Duration) string {
	return naming.Scheme{}.StageTopic(naming.Source{Topic: topic, Handler: topic, Delay: delay})
}

// climb is the process that is killed, by itself.
func climb(c *cluster) {
	proxy := testkit.Must(faultproxy.New(c.brokers[0]))
	lost, waiting, waits := make(chan struct{}), make(chan struct{}), atomic.Int32{}
	lose := sync.OnceFunc(func() { close(lost) })
	proxy.Watch(func(data []byte) faultproxy.Verdict {
		if !bytes.Contains(data, []byte(stageOf(c.topic, second))) || !bytes.Contains(data, []byte("unconfirmed-")) {
			return faultproxy.Pass
		}
		lose()
		return faultproxy.Hold
	}, nil)
	live := c.serve(&sink{}, proxy, func(msg *message.Message, n int) error {
		if n == 1 {
			return errors.New("it fails in its live topic")
		}
		<-waiting // until all have left there, which needs the publisher's connection
		if msg.UUID == "clock" {
			<-lost
			return nil
		}
		return errors.New("it fails in its first stage")
	}, func(retries.Waiting) {
		if waits.Add(1) == unconfirmed+1 {
			close(waiting)
		}
	})
	d := newDesk(c)
	d.group = groupOf(c.topic)
	d.send(live, c.topic, named("unconfirmed", unconfirmed)...)
	d.send(live, clockOf(c.topic), "clock")
	testkit.Receive(c, "the loss of a publish", lost)
	clock := stageOf(clockOf(c.topic), first)
	c.eventually("the clock's message is marked", func() bool { return d.behind(clock) == 0 })
	child.Kill()
}

// serve runs a service with two stages, whose live topics are of the process. It publishes to them through the proxy.
// handle gets each message with the number of its visit.
func (c *cluster) serve(dead message.Publisher, proxy *faultproxy.Proxy, handle func(*message.Message, int) error,
	onStage func(retries.Waiting)) *gochannel.GoChannel {
	c.Helper()
	config := PublisherConfig{}
	if proxy != nil {
		config.Sarama = func(config *sarama.Config) {
			config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, dialerTo(proxy.Addr())
		}
	}
	waiting, subscribe, err := NewStages(c.brokers, groupOf(c.topic), SubscriberConfig{}, config)
	if err != nil {
		c.Fatal(err)
	}
	c.cleanup(waiting.Close)
	of := retries.Config{Publisher: waiting, Subscriber: subscribe, Stages: retries.Delays(first, second)}
	if onStage != nil {
		of.Hooks.OnStage = func(_ context.Context, w retries.Waiting) { onStage(w) }
	}
	channel := testkit.Must(spillway.New(c.Context(), spillway.Config{Publisher: dead, Stages: &of,
		Retry: middleware.RetryConfig{Attempts: 1}}))
	live := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	var mu sync.Mutex
	visits := map[string]int{}
	testkit.RunRouter(c, nil, func(router *message.Router) {
		channel.Attach(router)
		for _, topic := range []string{c.topic, clockOf(c.topic)} {
			_, err := channel.Stages().AddConsumerHandler(router, topic, topic, live, func(msg *message.Message) error {
				mu.Lock()
				visits[msg.UUID]++
				n := visits[msg.UUID]
				mu.Unlock()
				return handle(msg, n)
			})
			if err != nil {
				c.Fatal(err)
			}
		}
	})
	return live
}

// forgetMembers takes the members of a group out of it that were killed, so that the next one need not wait until the
// broker does.
func (c *cluster) forgetMembers(group string) {
	c.Helper()
	groups, err := c.admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		c.Fatal(err)
	}
	for id := range groups[0].Members {
		c.eventually("a killed member is forgotten", func() bool {
			return left(c.brokers, publisherDefaults(), group, id)
		})
	}
}

// dialerTo dials one address for all.
type dialerTo string

func (d dialerTo) Dial(network, _ string) (net.Conn, error) { return net.Dial(network, string(d)) }
