package lifecycle_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/lifecycle"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Features D10, I8: the router's end waits for what runs beside it, which runs again with the next router.
func TestRunEndsWithTheRouter(t *testing.T) {
	runs, ended := 0, 0
	life := lifecycle.Run(func(ctx context.Context) {
		runs++
		<-ctx.Done()
		ended++
	})
	for round := 1; round <= 2; round++ {
		testkit.NoError(t, run(t, life.Plugin, func(r *message.Router, _ context.CancelFunc) { _ = r.Close() }))
		if runs != round || ended != round {
			t.Errorf("%d runs, %d ended", runs, ended)
		}
	}
}
