package frontdoor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/graceful"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

// drains is a subscriber with one message, which drains as the adapters do, or ends as those of other modules do.
type drains struct {
	message.Subscriber
	msg     *message.Message
	foreign bool
	closed  bool
	timeout time.Duration // what it was told
}

func (d *drains) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	if d.foreign {
		out := make(chan *message.Message)
		go func() {
			defer close(out)
			d.msg.SetContext(ctx)
			out <- d.msg
			<-ctx.Done()
		}()
		return out, nil
	}
	drain, out := graceful.Begin(ctx), make(chan *message.Message)
	d.timeout = drain.Timeout
	go func() {
		defer drain.End()
		defer close(out)
		d.msg.SetContext(drain.Work)
		out <- d.msg
		select {
		case <-d.msg.Acked():
			<-drain.Taking.Done()
		case <-d.msg.Nacked():
			<-drain.Taking.Done()
		case <-drain.Work.Done():
		}
	}()
	return out, nil
}

func (d *drains) Close() error { d.closed = true; return nil }

// busy returns a handler that takes some time, unless it is cut off.
func busy(takes time.Duration, outcome error) func(*message.Message) error {
	return func(msg *message.Message) error {
		select {
		case <-time.After(takes):
			return outcome
		case <-msg.Context().Done():
			return msg.Context().Err()
		}
	}
}

// Promise P3: in the drain a handler finishes, and its message is acked or dead-lettered as at any time. What waits for
// a retry goes back at once, uncounted, and no wait begins.
func TestDrain(t *testing.T) {
	const takes = 2 * time.Second
	once := middleware.Backoff{Initial: time.Minute, Max: time.Minute}
	for name, row := range map[string]struct {
		handle  func(*message.Message) error
		acked   bool
		letters int
		want    time.Duration // that closing takes
	}{
		"succeeds":                {acked: true, want: takes / 2, handle: busy(takes, nil)},
		"fails for good":          {acked: true, letters: 1, want: takes / 2, handle: busy(takes, classify.Permanent(errors.New("no such order")))},
		"fails, and would wait":   {want: takes / 2, handle: busy(takes, errors.New("refused"))},
		"waits for its next turn": {want: 0, handle: func(*message.Message) error { return errors.New("refused") }},
		"never ends": {want: graceful.Timeout, handle: func(msg *message.Message) error {
			<-msg.Context().Done()
			return msg.Context().Err()
		}},
	} {
		for _, foreign := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/foreign %t", name, foreign), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					letters, sub := &kept{}, &drains{msg: message.NewMessage("1", nil), foreign: foreign}
					ch := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: letters,
						Retry: middleware.RetryConfig{Attempts: 5, Backoff: once}}))
					router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
					ch.Attach(router)
					router.AddConsumerHandler("billing", "orders", sub, row.handle)
					ended := make(chan error, 1)
					go func() { ended <- router.Run(context.Background()) }()
					time.Sleep(takes / 2)
					began := time.Now()
					testkit.Is(t, router.Close(), nil)
					testkit.Equal(t, "closing took", time.Since(began), row.want)
					testkit.Is(t, <-ended, nil)
					synctest.Wait()
					select {
					case <-sub.msg.Acked():
						testkit.Check(t, row.acked, "it is acked")
					case <-sub.msg.Nacked():
						testkit.Check(t, !row.acked, "it is nacked")
					}
					testkit.Check(t, len(letters.taken) == row.letters && sub.closed,
						"%d letters, closed: %t", len(letters.taken), sub.closed)
				})
			})
		}
	}
}

// The time of a drain fits into that of the router, or the router's start says why not.
func TestDrainTimeout(t *testing.T) {
	for _, row := range []struct {
		drain, router, want time.Duration
		refused             string
	}{
		{want: graceful.Timeout},
		{router: time.Second, want: time.Second / 2},
		{drain: 20 * time.Second, want: 20 * time.Second},
		{drain: -1, want: 0},
		{drain: 30 * time.Second, refused: "Config.DrainTimeout is 30s, and the router gives up closing after its CloseTimeout of 30s"},
		{drain: 2 * time.Second, router: time.Second, refused: "CloseTimeout of 1s"},
	} {
		ch := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: &kept{}, DrainTimeout: row.drain}))
		router := testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: row.router}, watermill.NopLogger{}))
		ch.Attach(router)
		sub := &drains{msg: message.NewMessage("1", nil)}
		router.AddConsumerHandler("billing", "orders", sub, func(*message.Message) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			select {
			case <-router.Running():
				cancel()
			case <-ctx.Done():
			}
		}()
		err := router.Run(ctx)
		cancel()
		testkit.Check(t, row.refused != "" || err == nil && sub.timeout == row.want,
			"%+v: %s, %v", row, sub.timeout, err)
		testkit.Check(t, row.refused == "" || err != nil && strings.Contains(err.Error(), row.refused),
			"%+v: %v", row, err)
	}
}
