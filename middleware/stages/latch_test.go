package stages

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Promise P1: a message goes to a stage when the stage's handler has subscribed, and not before; who waits for one that
// never does, or whose own message ends, gives up.
func TestLatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		g := newLatch()
		time.AfterFunc(time.Second, g.open)
		if !g.await(t.Context()) || time.Since(start) != time.Second || !g.await(t.Context()) {
			t.Errorf("opened after %s", time.Since(start))
		}
		g.open()
		start = time.Now()
		if newLatch().await(t.Context()) || time.Since(start) != maxSubscribing {
			t.Errorf("gave up after %s", time.Since(start))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if newLatch().await(ended) {
			t.Error("passed a gate that is shut")
		}
	})
}
