package gate_test

import (
	"context"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/hold/gate"
)

// A subscriber and a part meet at the valve.
func Example() {
	var valve gate.Valve // of the subscription
	ctx := gate.With(context.Background(), &valve)

	reopen := make(chan struct{}) // of the part, which has found the downstream away
	gate.Of(ctx).Shut(reopen)
	fmt.Println("shut:", valve.IsShut())

	close(reopen) // it is time for the next attempt
	fmt.Println("taking:", valve.Wait(ctx))
	// Output:
	// shut: true
	// taking: true
}
