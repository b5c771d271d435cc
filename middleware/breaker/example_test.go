package breaker_test

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// The downstream is away for the first two attempts. The breaker holds the message and tries again, and no error leaves
// it.
func ExampleBreaker_Middleware() {
	breaker, err := breaker.New(breaker.Config{})
	if err != nil {
		panic(err)
	}
	attempts := 0
	handle := breaker.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		if attempts++; attempts <= 2 {
			return nil, classify.Away(errors.New("bank: connection refused"))
		}
		return nil, nil
	})
	_, err = handle(message.NewMessage("1", []byte("charge")))
	fmt.Println(attempts, err)
	// Output: 3 <nil>
}

// A handler is held by hand while its downstream is deployed. Messages in work end as usual.
func ExampleBreaker_Open() {
	breaker, err := breaker.New(breaker.Config{Hooks: breaker.Hooks{OnChange: func(c breaker.Change) {
		fmt.Println(c.Handler, "is", c.To, "because of", c.Reason)
	}}})
	if err != nil {
		panic(err)
	}
	if err := breaker.Open("billing", "bank upgrade"); err != nil {
		panic(err)
	}
	for _, status := range breaker.Health() {
		fmt.Println(status.Handler, status.State, status.Waiting)
	}
	if err := breaker.Close("billing"); err != nil {
		panic(err)
	}
	// Output:
	// billing is frozen because of bank upgrade
	// billing frozen 0
	// billing is closed because of bank upgrade
}
