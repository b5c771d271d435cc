package wmamqp_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
	"github.com/watermill-spillway/spillway/redrive"
)

// A header that is no string is text in metadata, and itself again on the way back.
func ExampleMarshaler() {
	var m wmamqp.Marshaler
	msg, err := m.Unmarshal(amqp091.Delivery{
		Headers: amqp091.Table{"retries": int32(3)}, MessageId: "m-1", ContentType: "application/json", Body: []byte(`{}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %q\n", msg.UUID, msg.Metadata["retries"])
	p, err := m.Marshal(msg)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%T %s\n", p.Headers["retries"], p.ContentType)
	// Output:
	// m-1 "3"
	// int32 application/json
}

// A dead letter channel on RabbitMQ.
func ExampleNewSubscriber() {
	const uri = "amqp://guest:guest@localhost:5672/"
	dead, err := wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer dead.Close()
	sub, err := wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{})
	if err != nil {
		log.Fatal(err)
	}
	dlc, err := spillway.New(context.Background(), spillway.Config{
		Publisher:  dead,
		Queue:      poison.QueueConfig{Origin: wmamqp.Origin},
		CrashLimit: &crashlimit.Config{Delivered: wmamqp.DeliveryCount}, // quorum queues count deliveries
	})
	if err != nil {
		log.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	dlc.Attach(router)
	router.AddConsumerHandler("billing", "orders", sub, func(msg *message.Message) error {
		return nil // bill the order
	})
	log.Fatal(router.Run(context.Background()))
}

// What waits in the dead-letter queue now goes back to where it came from.
func ExampleSubscriber_Backlog() {
	const uri = "amqp://guest:guest@localhost:5672/"
	pub, err := wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer pub.Close()
	sub, err := wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	report, err := redrive.DrainTopic(context.Background(), sub, pub, redrive.DrainTopicConfig{
		Rules:   redrive.Rules{Allow: []string{"orders"}},
		Park:    pub,
		Topic:   "orders.dlq",
		Backlog: sub.Backlog,
	})
	fmt.Println(report.Redriven, err)
}
