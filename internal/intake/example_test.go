package intake_test

import (
	"context"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/intake"
)

// A subscriber and a part meet at the valve.
func Example() {
	var valve intake.Valve // of the subscription
	ctx := intake.With(context.Background(), &valve)

	reopen := make(chan struct{}) // of the part, which has found the downstream away
	intake.Of(ctx).Shut(reopen)
	fmt.Println("shut:", valve.IsShut())

	close(reopen) // it is time for the next attempt
	fmt.Println("taking:", valve.Wait(ctx))
	// Output:
	// shut: true
	// taking: true
}
