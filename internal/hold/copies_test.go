package hold

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func callOf(r *Redelivery, id, payload string, metadata ...string) *chain.Call {
	msg := message.NewMessage(id, []byte(payload))
	for i := 0; i < len(metadata); i += 2 {
		msg.Metadata.Set(metadata[i], metadata[i+1])
	}
	msg.SetContext(WithRedelivery(context.Background(), r))
	return chain.Keep(msg)
}

// Feature R12: what came again is settled as the held message is. What was published twice is handled twice.
func TestSettle(t *testing.T) {
	same := func(r *Redelivery) *chain.Call { return callOf(r, "1", "p", "a", "b", "c", "d") }
	for name, row := range map[string]struct {
		r       *Redelivery
		held    time.Duration
		first   *chain.Call
		copy    func(*Redelivery) *chain.Call
		settled bool
	}{
		"a copy":                 {held: time.Second, settled: true},
		"held for a moment":      {held: time.Second - 1},
		"another payload":        {held: time.Minute, copy: func(r *Redelivery) *chain.Call { return callOf(r, "1", "q", "a", "b", "c", "d") }},
		"other metadata":         {held: time.Minute, copy: func(r *Redelivery) *chain.Call { return callOf(r, "1", "p", "a", "b", "c", "e") }},
		"another id":             {held: time.Minute, copy: func(r *Redelivery) *chain.Call { return callOf(r, "2", "p", "a", "b", "c", "d") }},
		"of another subscriber":  {held: time.Minute, copy: func(*Redelivery) *chain.Call { return same(&Redelivery{}) }},
		"of none":                {held: time.Minute, copy: func(*Redelivery) *chain.Call { return same(nil) }},
		"never redelivers":       {held: time.Minute, r: &Redelivery{Known: true}},
		"redelivers by sessions": {held: time.Minute, r: &Redelivery{Known: true, After: time.Minute, session: true}},
		"acks in a transaction":  {held: time.Minute, r: &Redelivery{Known: true, After: time.Minute, InTransaction: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := row.r
				if r == nil {
					r = &Redelivery{}
				}
				first := same(r)
				ended := Holding(first, time.Minute, watermill.NopLogger{})
				time.Sleep(row.held)
				ended()
				first.Msg.Ack()
				c := same(r)
				if row.copy != nil {
					c = row.copy(r)
				}
				o, settled := Settle(c)
				testkit.Check(t, settled == row.settled && o.Next == chain.Done, "settled %t, %v", settled, o)
				_, settled = Settle(first)
				testkit.Check(t, !settled, "a message is a copy of itself")
				time.Sleep(time.Minute + keptFor + 1)
				_, settled = Settle(c)
				testkit.Check(t, !settled, "remembered for good")
			})
		})
	}
	r := &Redelivery{}
	for range 2 {
		Holding(callOf(r, "", "p"), time.Minute, watermill.NopLogger{})()
	}
	testkit.Equal(t, "messages without an id are known", len(r.kept), 0)
	for i := range 3 * mostKept {
		Holding(callOf(r, fmt.Sprint(i+1), "p"), time.Minute, watermill.NopLogger{})()
	}
	testkit.Check(t, len(r.kept) <= mostKept && len(r.kept) >= mostKept/2, "%d are remembered", len(r.kept))
}

// Feature R12: what was remembered in an outage is forgotten without another message, unless it is held.
func TestCopiesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Redelivery{}
		first := callOf(r, "first", "p")
		ended := Holding(first, time.Minute, watermill.NopLogger{})
		stuck := callOf(r, "stuck", "p")
		defer Holding(stuck, time.Minute, watermill.NopLogger{})()
		time.Sleep(time.Minute)
		ended()
		first.Msg.Ack()
		for i := range 100 {
			c := callOf(r, fmt.Sprint(i), "p")
			_, settled := Settle(c)
			testkit.Check(t, !settled, "a new message is a copy")
			c.Msg.Ack()
		}
		remembered := func() int {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.kept)
		}
		testkit.Equal(t, "remembered", remembered(), 102)
		time.Sleep(3 * keptFor)
		testkit.Equal(t, "remembered, and one is held", remembered(), 1)
		stuck.Msg.Nack()
		Holding(callOf(r, "next", "p"), 0, watermill.NopLogger{})()
		time.Sleep(keptFor + 1)
		testkit.Equal(t, "remembered, and one is young", remembered(), 1)
	})
}

// Feature R12: what is remembered of a message keeps its payload out of memory.
func TestCopiesKeepNoPayload(t *testing.T) {
	r := &Redelivery{}
	payload := func() weak.Pointer[[1 << 20]byte] {
		payload := new([1 << 20]byte)
		msg := message.NewMessage("1", payload[:])
		type key struct{}
		msg.SetContext(context.WithValue(WithRedelivery(t.Context(), r), key{}, msg)) // as an adapter may
		c := chain.Keep(msg)
		Holding(c, time.Minute, watermill.NopLogger{})()
		return weak.Make(payload)
	}()
	testkit.Eventually(t, "the payload is free", func() bool { runtime.GC(); return payload.Value() == nil })
	testkit.Equal(t, "remembered", len(r.kept), 1)
	runtime.KeepAlive(r)
}

// Feature R12: a copy waits for the held message, and takes its place if that one's session ended.
func TestSettleWaits(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(*chain.Call, context.CancelFunc)
		want string
	}{
		"acked":         {func(c *chain.Call, _ context.CancelFunc) { c.Msg.Ack() }, "[acked acked acked]"},
		"given back":    {func(c *chain.Call, _ context.CancelFunc) { c.Msg.Nack() }, "[given back given back given back]"},
		"session ended": {func(_ *chain.Call, end context.CancelFunc) { end() }, "[goes on acked acked]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := &Redelivery{}, &testkit.Log{}
				ctx, end := context.WithCancel(WithRedelivery(context.Background(), r))
				defer end()
				msg := message.NewMessage("1", []byte("p"))
				msg.SetContext(ctx)
				first := chain.Keep(msg)
				defer Holding(first, time.Minute, log)()
				time.Sleep(4 * time.Second)
				results := make(chan string, 3)
				for range 3 {
					go func() {
						c := callOf(r, "1", "p")
						switch o, settled := Settle(c); {
						case !settled:
							results <- "goes on"
							time.Sleep(time.Second)
							c.Msg.Ack()
						case o.Next == chain.Done:
							results <- "acked"
						case o.Next == chain.Requeue && errors.Is(o.Why, errCopy):
							results <- "given back"
						}
					}()
				}
				synctest.Wait()
				testkit.Check(t, len(results) <= 0, "a copy did not wait")
				time.Sleep(2 * time.Second)
				r.kept[func() chain.Fingerprint { of, _ := first.Fingerprint(); return of }()].long = true
				row.end(first, end)
				time.Sleep(2 * time.Second)
				testkit.Equal(t, "", fmt.Sprint([]string{<-results, <-results, <-results}), row.want)
				lines := log.Lines(watermill.ErrorLogLevel, "delivered a message again")
				testkit.Check(t, len(lines) == 1 && r.MaxHold(0) == 2*time.Second,
					"%d lines, held for %s", len(lines), r.MaxHold(0))
			})
		})
	}
}

// The happy path asks for copies before each message.
func TestSettleAllocatesNothing(t *testing.T) {
	keeping.Store(0)
	c := callOf(&Redelivery{}, "1", "p")
	testkit.Equal(t, "allocations", testing.AllocsPerRun(1000, func() { Settle(c) }), 0)
}
