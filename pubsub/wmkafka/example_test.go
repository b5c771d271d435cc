package wmkafka_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/redrive"
)

var brokers = []string{"localhost:9092"}

// A router whose handlers' failures go to dead-letter topics on Kafka, which are created as the router starts.
func Example() {
	dead, err := wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer dead.Close()
	dlc, err := spillway.New(context.Background(), spillway.Config{Publisher: dead, Queue: poison.QueueConfig{Origin: wmkafka.Origin}})
	if err != nil {
		log.Fatal(err)
	}
	sub, err := wmkafka.NewSubscriber(brokers, "billing", wmkafka.SubscriberConfig{})
	if err != nil {
		log.Fatal(err)
	}
	router := message.NewDefaultRouter(nil)
	dlc.Attach(router)
	router.AddConsumerHandler("billing", "orders", sub, func(msg *message.Message) error {
		return nil
	})
	if err := router.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// A dead-letter topic is brought back, once, as far as it reaches now.
func ExampleSubscriber_Backlog() {
	pub, err := wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer pub.Close()
	sub, err := wmkafka.NewSubscriber(brokers, "redrive", wmkafka.SubscriberConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	report, err := redrive.DrainTopic(context.Background(), sub, pub, redrive.DrainTopicConfig{
		Rules:   redrive.Rules{Allow: []string{"orders"}},
		Park:    pub,
		Topic:   "orders.dlq",
		Backlog: sub.Backlog,

		FromBeginning: true, // the group's first drain
	})
	fmt.Println(report, err)
}

// Watermill-kafka's own subscriber with this marshaler: keys and headers are kept, and what the format cannot read is
// set aside instead of stopping the partition.
func ExampleMarshaler() {
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers:       brokers,
		ConsumerGroup: "billing",
		Unmarshaler:   wmkafka.Marshaler{},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
}

// All stages of a service share one publisher and one consumer group. Messages of producers without ids are recognised
// by their place.
func ExampleNewStages() {
	waiting, subscribe, err := wmkafka.NewStages(brokers, "shop", wmkafka.SubscriberConfig{}, wmkafka.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer waiting.Close() // after the router
	var db *sql.DB
	_, err = spillway.New(context.Background(), spillway.Config{
		Service: "shop", DB: db,
		Stages:   &stages.Config{Publisher: waiting, Subscriber: subscribe},
		Receiver: &idempotency.ReceiverConfig{Key: byPlace},
	})
	if err != nil {
		log.Fatal(err)
	}
}

// byPlace recognises a record that Kafka delivers again, and no other copy of the message.
func byPlace(msg *message.Message) (string, error) {
	o := wmkafka.Origin(msg)
	if o.Offset == "" {
		return "", classify.Invalid(errors.New("the message did not come from Kafka"))
	}
	return fmt.Sprint(o.Topic, "/", o.Partition, "/", o.Offset, "/", o.Timestamp.UnixMilli()), nil
}

// Messages get keys from a function, letters keep theirs.
func ExampleMarshaler_inner() {
	marshaler := wmkafka.Marshaler{Inner: kafka.NewWithPartitioningMarshaler(func(_ string, msg *message.Message) (string, error) {
		return msg.Metadata.Get("customer"), nil
	})}
	order := message.NewMessage("id-1", []byte("{}"))
	order.Metadata.Set("customer", "42")
	record, err := marshaler.Marshal("orders", order)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(keyOf(record))

	letter := poison.Letter{Original: order, Origin: poison.Origin{Topic: "orders", Key: []byte("first")}}
	record, err = marshaler.Marshal("orders.dlq", letter.Encode())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(keyOf(record))
	back, err := marshaler.Unmarshal(&sarama.ConsumerMessage{Value: []byte("{}")})
	fmt.Printf("%q %v\n", back.UUID, err) // a record that Watermill did not write has no id
	// Output:
	// 42
	// first
	// "" <nil>
}

func keyOf(record *sarama.ProducerMessage) string {
	key, _ := record.Key.Encode()
	return string(key)
}

// The messages of a record key take effect in the order of their partition, also when one of them fails: it waits in
// the database, those behind it too, and other keys go on.
func ExampleSubscriberConfig_ordered() {
	var db *sql.DB // PostgreSQL, MySQL, MariaDB or SQLite
	dlc, err := spillway.New(context.Background(), spillway.Config{
		Service: "shop", DB: db, Queue: poison.QueueConfig{Origin: wmkafka.Origin}, Ordered: &spillway.OrderedConfig{},
	})
	if err != nil {
		log.Fatal(err)
	}
	subscriber, err := wmkafka.NewSubscriber(brokers, "billing", wmkafka.SubscriberConfig{InFlight: 16})
	if err != nil {
		log.Fatal(err)
	}
	router := message.NewDefaultRouter(nil)
	dlc.Attach(router)
	router.AddConsumerHandler("billing", "orders", subscriber, func(msg *message.Message) error {
		_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), "INSERT INTO bills (id) VALUES ($1)", msg.UUID)
		return err
	})
}

// Topics for dead letters are created by hand where no channel does it.
func ExamplePublisher_InitializeTopicsFor() {
	pub, err := wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer pub.Close()
	if err := pub.InitializeTopicsFor("orders", "orders.dlq", "orders.dlq.parked"); err != nil {
		log.Fatal(err)
	}
}
