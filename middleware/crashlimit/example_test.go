package crashlimit_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
)

// must is for examples: a program handles its errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A message that ends the process is refused after it did so a few times, by the store's count. No program can show
// that and live, so this shows the broker's own count, which can stand alone or beside it.
func ExampleLimit() {
	limit := must(crashlimit.New(crashlimit.Config{
		Max:       5,
		Delivered: func(msg *message.Message) (int, bool) { return len(msg.Payload), true }, // wmamqp.DeliveryCount, for instance
		Hooks: crashlimit.Hooks{OnExceeded: func(_ context.Context, u crashlimit.Unfinished) {
			fmt.Println(u.Key, "did not return", u.Deliveries, "times")
		}},
	}))
	handle := limit.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("handled", msg.UUID)
		return nil, nil
	})
	for i, id := range []string{"good", "deadly"} {
		if _, err := handle(message.NewMessage(id, make([]byte, 9*i))); err != nil {
			verdict := (*classify.Classifier)(nil).Classify(err)
			fmt.Println("refused", id+":", verdict.Class, verdict.Reason)
		}
	}
	// Output:
	// handled good
	// deadly did not return 9 times
	// refused deadly: permanent max_delivery_count_exceeded
}
