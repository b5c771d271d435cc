package middleware_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

func large(n int) message.HandlerFunc {
	payload := bytes.Repeat([]byte("x"), 1<<20)
	return func(*message.Message) (out []*message.Message, err error) {
		for i := range n {
			out = append(out, message.NewMessage(fmt.Sprint("out-", i), payload))
		}
		return out, nil
	}
}

// Feature D15: what is copied of a source's outputs, so that they can be published again, is bounded.
func TestOutputsCopyLittle(t *testing.T) {
	o := newOutputs(t, &publisher{}, middleware.OutputsConfig{})
	pub := decorate(t, o, testkit.Nowhere{})
	h, source := large(64), message.NewMessage("1", nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	testkit.NoError(t, route(o, pub, source, h))
	runtime.ReadMemStats(&after)
	n := after.TotalAlloc - before.TotalAlloc
	testkit.Check(t, n <= 8<<20, "%d bytes were allocated to publish 64 outputs of 1 MiB", n)
}

// Feature D15, promise P2: large outputs that are refused once are published as they were made. Where a decorator wrote
// into their payloads, which are not copied, they are not published again: the source comes again, or is set aside
// where that would not help.
func TestLargeOutputsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		scribbles bool
		err       error
		published int
		settled   bool
		letters   int
	}{
		"intact":              {false, classify.Transient(errBoom), 3, true, 0},
		"spoilt, transient":   {true, classify.Transient(errBoom), 0, false, 0},
		"spoilt, for unknown": {true, errBoom, 0, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dead := &publisher{}
				refused := 0
				pub := &publisher{refuse: func(_ string, msg *message.Message) error {
					if refused++; refused > 1 {
						return nil
					}
					if row.scribbles {
						clear(msg.Payload)
					}
					return row.err
				}}
				o := newOutputs(t, dead, middleware.OutputsConfig{})
				source := message.NewMessage("1", []byte("source"))
				err := route(o, decorate(t, o, pub), source, large(3))
				testkit.Check(t, (err == nil) == row.settled && len(dead.ids()) == row.letters &&
					len(pub.ids()) == row.published, "%v, letters %v, published %v", err, dead.ids(), pub.ids())
				for _, msg := range pub.messages() {
					testkit.Check(t, bytes.Count(msg.Payload, []byte("x")) == 1<<20,
						"%s is not as it was made", msg.UUID)
				}
			})
		})
	}
}
