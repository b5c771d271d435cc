package idempotency_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
)

// letters counts what is published.
type letters struct{ n atomic.Int32 }

func (l *letters) Publish(_ string, messages ...*message.Message) error {
	l.n.Add(int32(len(messages)))
	return nil
}
func (l *letters) Close() error { return nil }

// Feature I3: a duplicate that comes while the first is at work is put back: nothing is counted and no letter is written.
// When the first has ended, it is absorbed, with the outputs of the first.
func TestLeaseDuplicate(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		_, db := b.ready(t)
		var attempts, backs atomic.Int32
		var written letters
		queue, err := poison.NewQueue(&written, poison.QueueConfig{})
		if err != nil {
			t.Fatal(err)
		}
		retry, err := middleware.NewRetry(middleware.RetryConfig{OnAttempt: func(context.Context, middleware.Attempt) { attempts.Add(1) }})
		if err != nil {
			t.Fatal(err)
		}
		r := newReceiver(t, b.store(db), idempotency.ReceiverConfig{Lease: time.Minute, PutBackAfter: time.Millisecond,
			OnPutBack: func(context.Context, idempotency.Key) { backs.Add(1) }})
		working, done := make(chan struct{}), make(chan struct{})
		runs := 0
		h := chain.EnterParts(queue, retry, r)(func(*message.Message) ([]*message.Message, error) {
			runs++
			close(working)
			<-done
			return []*message.Message{newMessage("")}, nil
		})
		first := make(chan string, 1)
		go func() {
			out, err := h(newMessage("m1"))
			if err != nil || len(out) != 1 {
				t.Error(out, err)
				first <- ""
				return
			}
			first <- out[0].UUID
		}()
		<-working
		for n := range int32(20) {
			if out, err := h(newMessage("m1")); !aborted(err) || !errors.Is(err, idempotency.ErrHeld) || out != nil || backs.Load() != n+1 {
				t.Fatal(out, err, backs.Load())
			}
		}
		if attempts.Load() != 0 || written.n.Load() != 0 {
			t.Fatal(attempts.Load(), written.n.Load())
		}
		close(done)
		id := <-first
		out, err := h(newMessage("m1"))
		if err != nil || len(out) != 1 || out[0].UUID != id || runs != 1 || written.n.Load() != 0 {
			t.Fatal(out, err, runs)
		}
	})
}

// Feature I3: the same through a channel and a router: of many deliveries at once the handler sees one, and no letter is
// written, though the others come again and again meanwhile.
func TestLeaseInRouter(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		_, db := b.ready(t)
		var runs, absorbed, backs atomic.Int32
		var written letters
		dlc, err := spillway.New(t.Context(), spillway.Config{Publisher: &written, Retry: middleware.RetryConfig{Attempts: 2}, Idempotency: b.store(db), Receiver: idempotency.ReceiverConfig{
			Lease: time.Minute, PutBackAfter: 10 * time.Millisecond,
			OnPutBack:   func(context.Context, idempotency.Key) { backs.Add(1) },
			OnDuplicate: func(context.Context, idempotency.Key) { absorbed.Add(1) },
		}})
		if err != nil {
			t.Fatal(err)
		}
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		bus := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
		dlc.Attach(router)
		done := make(chan struct{})
		router.AddConsumerHandler("mailer", "orders", bus, func(msg *message.Message) error {
			runs.Add(1)
			<-done
			return nil
		})
		stopped := make(chan error)
		go func() { stopped <- router.Run(context.Background()) }()
		<-router.Running()
		for range 5 {
			if err := bus.Publish("orders", newMessage("m1")); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "duplicates are put back many times", func() bool { return backs.Load() > 30 })
		close(done)
		eventually(t, "all are absorbed", func() bool { return absorbed.Load() == 4 })
		_ = router.Close()
		if err := <-stopped; err != nil || runs.Load() != 1 || written.n.Load() != 0 {
			t.Fatal(err, runs.Load(), written.n.Load())
		}
	})
}

// renewedInTime runs a test in which a lease must be renewed, again with a longer one where the lease was lost: a disk that
// stands still for longer than a lease lasts makes every renewal late.
func renewedInTime(t *testing.T, test func(lease time.Duration) error) {
	t.Helper()
	for lease := time.Second; ; lease *= 2 {
		err := test(lease)
		if err == nil {
			return
		}
		if !errors.Is(err, idempotency.ErrLeaseLost) || lease >= 8*time.Second {
			t.Fatalf("with a lease of %s: %v", lease, err)
		}
		t.Logf("with a lease of %s: %v", lease, err)
	}
}

// Feature I3: while its handler is at work a lease does not pass to another process, however short it is.
func TestLeaseOutlasted(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		t.Parallel()
		address, db := b.ready(t)
		other := b.store(b.open(t, address))
		renewedInTime(t, func(lease time.Duration) error {
			execute(t, db, `DELETE FROM spillway_keys`)
			r := newReceiver(t, b.store(db), idempotency.ReceiverConfig{Lease: lease})
			_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				for end := time.Now().Add(3 * lease); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
					_, err := other.Lease(context.Background(), idempotency.Entry{Key: leaseKey}, time.Second)
					if err == nil {
						return nil, idempotency.ErrLeaseLost
					}
					if !errors.Is(err, idempotency.ErrHeld) {
						return nil, err
					}
				}
				return nil, msg.Context().Err()
			})(newMessage("m1"))
			return err
		})
	})
}

// Feature I3: where the database is gone under a running handler, the handler is cancelled before another has the key.
func TestLeaseCutOff(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		t.Parallel()
		address, db := b.ready(t)
		other := b.store(b.open(t, address))
		var lost atomic.Int32
		r := newReceiver(t, b.store(db), idempotency.ReceiverConfig{Lease: 2 * time.Second, PutBackAfter: time.Millisecond,
			OnLeaseLost: func(context.Context, idempotency.Key) { lost.Add(1) }})
		_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			_ = db.Close()
			ctx := msg.Context()
			eventually(t, "another has the key", func() bool {
				cancelled := ctx.Err() != nil
				_, err := other.Lease(context.Background(), idempotency.Entry{Key: leaseKey}, time.Minute)
				if err == nil && !cancelled && ctx.Err() == nil {
					t.Error("another has the key, and the handler knows nothing")
				}
				return err == nil
			})
			if !errors.Is(context.Cause(ctx), idempotency.ErrLeaseLost) {
				t.Error(context.Cause(ctx))
			}
			return nil, ctx.Err()
		})(newMessage("m1"))
		if !aborted(err) || lost.Load() != 1 {
			t.Fatal(err, lost.Load())
		}
	})
}

// Feature I3: a handler that succeeds after another has taken the key over changes nothing of what that one records, and its
// message is put back; it is absorbed when it comes again.
func TestLeaseTakenOver(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		_, db := b.ready(t)
		var lost atomic.Int32
		r := newReceiver(t, b.store(db), idempotency.ReceiverConfig{Lease: time.Hour, PutBackAfter: time.Millisecond,
			OnLeaseLost: func(context.Context, idempotency.Key) { lost.Add(1) }})
		output := func(text string) []*message.Message { return []*message.Message{message.NewMessage("", []byte(text))} }
		fences := []int64{}
		note := func(msg *message.Message) {
			token, _ := idempotency.Fence(msg.Context())
			fences = append(fences, token)
		}
		_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			note(msg)
			execute(t, db, `UPDATE spillway_keys SET expires_at = 1, applied_at = 1`) // as if it had been suspended
			if _, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) { note(msg); return output("second"), nil })(newMessage("m1")); err != nil {
				t.Error(err)
			}
			return output("first"), nil
		})(newMessage("m1"))
		if !aborted(err) || lost.Load() != 1 || len(fences) != 2 || fences[0] >= fences[1] {
			t.Fatal(err, lost.Load(), fences)
		}
		out, err := r.Middleware(func(*message.Message) ([]*message.Message, error) { t.Error("it ran again"); return nil, nil })(newMessage("m1"))
		if err != nil || len(out) != 1 || string(out[0].Payload) != "second" {
			t.Fatal(out, err)
		}
	})
}

// Feature I3: a configuration may change from one mode to the other: what was applied under the one is known under the
// other, failed messages are free, and a version or a payload counts for both.
func TestLeaseAndTransactionMode(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		_, db := b.ready(t)
		store := b.store(db)
		version := idempotency.VersionMetadata("v")
		modes := []*idempotency.Receiver{
			newReceiver(t, store, idempotency.ReceiverConfig{Lease: time.Minute, Version: version, Key: idempotency.ByMetadata("key")}),
			newReceiver(t, store, idempotency.ReceiverConfig{Version: version, Key: idempotency.ByMetadata("key")}),
		}
		for i, before := range modes {
			after, key := modes[1-i], fmt.Sprint("key", i)
			runs := 0
			deliver := func(r *idempotency.Receiver, v int, payload string, fail error) ([]*message.Message, error) {
				msg := message.NewMessage("id", []byte(payload))
				msg.Metadata = message.Metadata{"key": key, "v": fmt.Sprint(v)}
				return r.Middleware(func(*message.Message) ([]*message.Message, error) {
					runs++
					return []*message.Message{newMessage("")}, fail
				})(msg)
			}
			if _, err := deliver(before, 3, "three", errDown); err != errDown {
				t.Fatal(err)
			}
			if out, err := deliver(after, 3, "three", nil); err != nil || len(out) != 1 || runs != 2 {
				t.Fatal(out, err, runs)
			}
			if out, err := deliver(before, 3, "three", nil); err != nil || len(out) != 1 || runs != 2 {
				t.Fatal(out, err, runs)
			}
			if out, err := deliver(before, 2, "two", nil); err != nil || len(out) != 0 || runs != 2 {
				t.Fatal(out, err, runs)
			}
			if _, err := deliver(before, 3, "other", nil); reason(err) != "key_reused" {
				t.Fatal(err)
			}
			if _, err := deliver(before, 4, "four", nil); err != nil || runs != 3 {
				t.Fatal(err, runs)
			}
			if out, err := deliver(after, 4, "four", nil); err != nil || len(out) != 1 || runs != 3 {
				t.Fatal(out, err, runs)
			}
		}
	})
}

// Feature I3: where the answer to a commit is lost, a record is found by the next try, and a lease that nobody knows of is
// given up, so that the next delivery need not wait for its end.
func TestLeaseAnswerLost(t *testing.T) {
	cut := errors.New("connection reset by peer")
	var n atomic.Int32
	f := &faulty{}
	db, observer := openFaulty(t, f)
	r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{Lease: time.Hour})
	lose := func() error { // the answer to the first commit from here on
		if n.Add(1) == 1 {
			return cut
		}
		return nil
	}
	f.onCommitted = lose
	runs := 0
	h := r.Middleware(func(*message.Message) ([]*message.Message, error) {
		runs++
		n.Store(0)
		return nil, nil
	})
	if _, err := h(newMessage("m1")); !errors.Is(err, cut) || runs != 0 {
		t.Fatal(err, runs)
	}
	for range 2 {
		if _, err := h(newMessage("m1")); err != nil || runs != 1 {
			t.Fatal(err, runs)
		}
	}
	if n := count(t, observer, `spillway_keys WHERE expires_at IS NULL`); n != 1 {
		t.Fatal(n)
	}
}

const leaseChild = "SPILLWAY_LEASE_CHILD"

// TestLeaseChild is the process that TestLeaseKilled kills: it handles a message, tells its fence, and does not end.
func TestLeaseChild(t *testing.T) {
	name, address, ok := strings.Cut(os.Getenv(leaseChild), " ")
	if !ok { // there is none to be
		return
	}
	for _, b := range leaseBases {
		if b.name != name {
			continue
		}
		r := newReceiver(t, b.store(b.open(t, address)), idempotency.ReceiverConfig{Lease: 5 * time.Second})
		_, _ = r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			token, _ := idempotency.Fence(msg.Context())
			fmt.Println("fence", token)
			select {}
		})(newMessage("m1"))
	}
}

// Feature I3, promise P7: when a process is killed in its handler, the message is applied by another when the lease is over,
// under a higher fence.
func TestLeaseKilled(t *testing.T) {
	onLeaseBases(t, func(t *testing.T, b leaseBase) {
		t.Parallel()
		address, db := b.ready(t)
		child := exec.Command(os.Args[0], "-test.run", "^TestLeaseChild$", "-test.timeout", "2m")
		child.Env = append(os.Environ(), leaseChild+"="+b.name+" "+address)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = child.Wait() }()
		defer func() { _ = child.Process.Kill() }()
		var fence int64
		for lines := bufio.NewScanner(out); fence == 0; {
			if !lines.Scan() {
				t.Fatal("the child ended: ", lines.Err())
			}
			_, _ = fmt.Sscanf(lines.Text(), "fence %d", &fence)
		}
		r := newReceiver(t, b.store(db), idempotency.ReceiverConfig{Lease: time.Minute, PutBackAfter: time.Millisecond})
		var token int64
		deliver := func() error {
			_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				token, _ = idempotency.Fence(msg.Context())
				return nil, nil
			})(newMessage("m1"))
			return err
		}
		if err := deliver(); !errors.Is(err, idempotency.ErrHeld) {
			t.Fatal(err)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the message is applied", func() bool {
			err := deliver()
			if err != nil && !errors.Is(err, idempotency.ErrHeld) {
				t.Fatal(err)
			}
			return err == nil
		})
		if token <= fence || count(t, db, `spillway_keys WHERE expires_at IS NULL`) != 1 {
			t.Fatal(token, fence)
		}
	})
}
