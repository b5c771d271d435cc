package outputs_test

import (
	"context"
	"fmt"
	"github.com/watermill-spillway/spillway/middleware/outputs"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
)

// upTo is a publisher that takes no message beyond a size, as brokers do.
type upTo struct {
	bytes int
	taken chan string
}

func (p upTo) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if len(msg.Payload) > p.bytes {
			return classify.ErrTooLarge
		}
		p.taken <- topic + " takes " + msg.UUID
	}
	return nil
}

func (p upTo) Close() error { return nil }

// An invoice too large for its topic would come again and again. Instead its order is set aside, and the next order
// goes on.
func ExampleNew() {
	taken := make(chan string, 10)
	queue := must(poison.NewQueue(upTo{bytes: 1 << 20, taken: taken}, poison.QueueConfig{}))
	o := must(outputs.New(queue, outputs.Config{
		Backoff: middleware.Backoff{Initial: time.Millisecond},
	}))
	router := must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	orders := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	router.AddMiddleware(o.Middleware)
	router.AddPublisherDecorators(o.Decorate)
	router.AddHandler("billing", "orders", orders, "invoices", upTo{bytes: 100, taken: taken},
		func(msg *message.Message) ([]*message.Message, error) {
			size := map[string]int{"order-1": 1000, "order-2": 10}[msg.UUID]
			return []*message.Message{message.NewMessage("invoice of "+msg.UUID, make([]byte, size))}, nil
		})
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()

	for _, id := range []string{"order-1", "order-2"} {
		if err := orders.Publish("orders", message.NewMessage(id, nil)); err != nil {
			log.Fatal(err)
		}
		fmt.Println(<-taken)
	}
	_ = router.Close()
	// Output:
	// orders.dlq takes order-1
	// invoices takes invoice of order-2
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
