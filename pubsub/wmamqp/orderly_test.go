package wmamqp_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/settings"
)

const orderlyVariable = "SPILLWAY_WMAMQP_ORDERLY"

// A clean SIGTERM logs no error: neither watermill-amqp's loops nor our own call the end one, nor what is requeued with
// it. A connection that is lost before is one still.
func TestOrderlyEndLogsNoError(t *testing.T) {
	t.Parallel()
	if topics := os.Getenv(orderlyVariable); topics != "" {
		orderly(t, strings.Fields(topics))
		return
	}
	b := newBroker(t)
	var topics []string
	for range 4 {
		topic := b.queue("quorum")
		topics = append(topics, topic)
		for i := range 20 {
			b.send(topic, amqp091.Publishing{MessageId: fmt.Sprint(i)})
		}
	}
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "5m")
	child.Env = append(os.Environ(), orderlyVariable+"="+strings.Join(topics, " "))
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ended in order") {
		t.Errorf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "level=ERROR") {
			t.Error(line)
		}
	}
}

// orderly is a service whose handlers are all busy when SIGTERM comes.
func orderly(t *testing.T, topics []string) {
	b := newBroker(t)
	logger := watermill.NewStdLoggerWithOut(os.Stdout, false, false)
	var busy atomic.Int32
	dead, err := wmamqp.NewPublisher(b.uri, wmamqp.PublisherConfig{Shared: settings.Shared{Logger: logger}})
	if err != nil {
		t.Fatal(err)
	}
	queue, err := poison.NewQueue(dead, poison.QueueConfig{Shared: settings.Shared{Logger: logger, Naming: naming.Scheme{DeadLetter: topics[0]}}, Origin: wmamqp.Origin})
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, logger)
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(queue.Middleware)
	var subs []*wmamqp.Subscriber
	for i, topic := range topics {
		config := wmamqp.SubscriberConfig{Shared: settings.Shared{Logger: logger}, InFlight: 1 + 3*(i%2)}
		patient(&config)
		sub, err := wmamqp.NewSubscriber(b.uri, config)
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
		router.AddConsumerHandler(topic, topic, sub, func(msg *message.Message) error {
			busy.Add(1)
			<-msg.Context().Done()
			if i < 2 { // it finishes
				return nil
			}
			return msg.Context().Err()
		})
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	eventually(t, "all handlers are busy", func() bool { return busy.Load() == 10 })
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, sub := range subs { // Run may leave them open when its context ends
		b.closed("the subscriber", sub.Close())
	}
	b.closed("the publisher", dead.Close())
	time.Sleep(500 * time.Millisecond) // for what comes late
	fmt.Println("ended in order")
}
