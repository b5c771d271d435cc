package poison_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
)

// printing is a publisher that shows where dead letters go.
type printing struct{}

func (printing) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		letter, err := poison.Decode(msg)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s of %s, %s: %s\n", topic, letter.Original.UUID, letter.Origin.Topic, letter.Failure.Reason, letter.Failure.Description)
	}
	return nil
}

func (printing) Close() error { return nil }

// A queue around one handler of a router.
func ExampleQueue() {
	done := make(chan struct{})
	queue, err := poison.NewQueue(printing{}, poison.QueueConfig{
		Hooks: poison.Hooks{OnDeadLetter: func(context.Context, poison.Letter) { close(done) }},
	})
	if err != nil {
		log.Fatal(err)
	}
	orders := gochannel.NewGoChannel(gochannel.Config{}, nil)
	router := message.NewDefaultRouter(nil)
	router.AddConsumerHandler("billing", "orders", orders, func(*message.Message) error {
		return classify.Permanent(errors.New("no such customer"))
	}).AddMiddleware(queue.Middleware)
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	_ = orders.Publish("orders", message.NewMessage("order-1", nil))
	<-done
	_ = router.Close()
	// Output: orders.dlq: order-1 of orders, permanent_error: no such customer
}

// A dead letter is the original message and its story, in metadata that any broker carries.
func ExampleLetter() {
	letter := poison.Letter{
		Original: message.NewMessage("order-1", []byte(`{"customer":7}`)),
		Origin:   poison.Origin{Topic: "orders", Handler: "billing"},
		Failure:  poison.Failure{Class: classify.ClassPermanent, Reason: "no_customer", Attempts: 1},
	}
	dead := letter.Encode()
	fmt.Println(dead.UUID, dead.Metadata[poison.KeyOriginalTopic], dead.Metadata[poison.KeyFailureReason])

	back := letter.Redriven("ada", "campaign-1", time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))
	fmt.Println(back.UUID, back.Metadata[poison.KeyRedriveCount], back.Metadata[poison.KeyRedrivenBy], back.Metadata[poison.KeyFailureReason] == "")
	// Output:
	// order-1 orders no_customer
	// order-1 1 ada true
}

// A publisher of a decorator that hides what is inside makes its topics by itself, and a second broker takes letters
// that the first one refuses.
func ExampleWithInitializer() {
	queue, err := poison.NewQueue(poison.WithInitializer(refusing{}, poison.TopicsExist), poison.QueueConfig{
		PublishAttempts: 1,
		Fallbacks:       []poison.Sink{{Publisher: printing{}, Topic: "dead"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	msg := message.NewMessage("order-1", []byte("<order>"))
	poison.MarkUnreadable(msg, errors.New("no JSON")) // as an adapter does where it cannot unmarshal
	_, err = queue.Middleware(message.PassthroughHandler)(msg)
	fmt.Println(err)
	// Output:
	// dead: order-1 of unknown, unmarshal_error: no JSON
	// <nil>
}

// refusing is a publisher whose broker is unavailable.
type refusing struct{}

func (refusing) Publish(string, ...*message.Message) error { return errors.New("the broker refuses") }

func (refusing) Close() error { return nil }
