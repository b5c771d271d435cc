package outage

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var errDial = fmt.Errorf("publish: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})

// Promise P4: an error says whether the client is connected.
func TestLink(t *testing.T) {
	for _, row := range []struct {
		err  error
		want link
	}{
		{fmt.Errorf("publish: %w", io.EOF), cut},
		{io.ErrUnexpectedEOF, cut},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, cut},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, cut},
		{mysql.ErrInvalidConn, cut},
		{&amqp091.Error{Code: amqp091.FrameError, Reason: "EOF"}, cut},
		{amqp091.ErrClosed, unclear},
		{errUnavailable, unclear},
		{sarama.ErrNotConnected, unclear},
		{errDial, disconnected},
		{syscall.ECONNREFUSED, disconnected},
		{sarama.Wrap(sarama.ErrOutOfBrokers, io.EOF), disconnected},
		{fmt.Errorf("%w: %w", new(pgconn.ConnectError), io.EOF), disconnected},
		{&pgconn.PgError{Code: "57P03"}, disconnected},
		{context.DeadlineExceeded, disconnected},
		{hold.NewUnavailable("not connected"), disconnected},
		{evil{}, disconnected},
	} {
		got := linkOf(row.err)
		testkit.Check(t, got == row.want, "%#v: %d", row.err, got)
	}
}

type evil struct{}

func (evil) Error() string { panic("Error") }

// aLongTime is many times as long as a message is held that may be what cuts the connection.
const aLongTime = 3 * time.Hour

// until offers a message until it ends, for a long time at most.
func until(t *testing.T, g *Dependency, id string, try func() error) (time.Duration, error) {
	began := time.Now()
	for {
		err := g.Do(t.Context(), call(t.Context(), id), try)
		if took := time.Since(began); !requeued(err) || took > aLongTime {
			return took, err
		}
	}
}

// Promise P4: a message over which the other side closes the connection ends, although nothing else can pass.
func TestCutsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := watermill.NewCaptureLogger()
		g := New(Config{Logger: logger})
		for _, id := range []string{"7", "8"} { // one after the other
			took, err := until(t, g, id, func() error { return io.EOF })
			testkit.Check(t, err == io.EOF && took >= maxRefusal && took <= 3*maxRefusal,
				"%s: after %s: %v", id, took, err)
			err = g.Do(t.Context(), call(t.Context(), id), func() error { return io.EOF })
			testkit.Check(t, err == io.EOF, "a retry is held: %v", err)
		}
		testkit.NoError(t, g.Do(t.Context(), call(t.Context(), "9"), func() error { return nil }))
		time.Sleep(calm)
		synctest.Wait()
		lines := logger.Captured()
		begins, ends := len(lines[watermill.ErrorLogLevel]), len(lines[watermill.InfoLogLevel])
		testkit.Check(t, begins == ends && begins <= 2, "%d begins, %d ends", begins, ends)
	})
}

// Decision 13: a thing that is unavailable for good holds its messages for good, and one line says so. That is so if
// connections are lost too; behind an accepting proxy, few are set aside.
func TestLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, lost := range []error{errUnavailable, io.EOF} {
			logger := watermill.NewCaptureLogger()
			g, n := New(Config{Logger: logger}), 0
			took, err := until(t, g, "m", func() error {
				if n++; n%7 > 0 {
					return lost
				}
				return errDial
			})
			testkit.Check(t, requeued(err), "%v: after %s: %v", lost, took, err)
			testkit.Equal(t, "lines", len(logger.Captured()[watermill.ErrorLogLevel]), 1)
		}
		g, n := New(Config{}), 0
		for began := time.Now(); time.Since(began) < aLongTime; n++ {
			_, _ = until(t, g, "m"+strconv.Itoa(n), func() error { return io.EOF })
		}
		testkit.Check(t, n <= 6, "%d messages are set aside", n)
		g = New(Config{}) // two messages, of two partitions
		var both sync.WaitGroup
		for _, id := range []string{"a", "b"} {
			both.Go(func() {
				took, err := until(t, g, id, func() error { return io.EOF })
				testkit.Check(t, requeued(err), "%s: after %s: %v", id, took, err)
			})
		}
		both.Wait()
	})
}

// Promise P3: a broker that comes and goes sets nothing aside: what it did not take it takes when it is back.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := watermill.NewCaptureLogger()
		g, began := New(Config{Logger: logger}), time.Now()
		try := func() error {
			switch time.Since(began) % (70 * time.Second) / (10 * time.Second) {
			case 0:
				return nil
			case 1:
				return io.EOF
			}
			return errDial
		}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for n := 0; time.Since(began) < 20*time.Minute; n++ {
					took, err := until(t, g, fmt.Sprintf("%d-%d", i, n), try)
					testkit.Check(t, err == nil && took <= 90*time.Second, "after %s: %v", took, err)
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		all.Wait()
		time.Sleep(calm)
		synctest.Wait()
		lines := logger.Captured()
		begins, ends := len(lines[watermill.ErrorLogLevel]), len(lines[watermill.InfoLogLevel])
		testkit.Check(t, begins == ends && begins >= 17 && begins <= 18,
			"%d begins, %d ends, in 20 minutes", begins, ends)
	})
}

// Promise P4: a message that is refused while others pass is offered less and less often, and is no outage.
func TestRefusedIsNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, hold := range []time.Duration{0, time.Second} { // deliveries share the wait
			logger := watermill.NewCaptureLogger()
			g, ctx, offered := New(Config{Logger: logger, MaxHold: hold}), t.Context(), 0
			var all sync.WaitGroup
			all.Go(func() {
				for range 600 {
					_ = g.Do(ctx, call(ctx, "other"), func() error { return nil })
					time.Sleep(100 * time.Millisecond)
				}
			})
			all.Go(func() {
				for began := time.Now(); time.Since(began) < time.Minute; {
					_ = g.Do(ctx, call(ctx, "m"), func() error { offered++; return errUnavailable })
				}
			})
			all.Wait()
			testkit.Check(t, offered >= 8 && offered <= 14, "offered %d times in a minute", offered)
			for began := time.Now(); time.Since(began) < 30*time.Second; {
				_ = g.Do(ctx, call(ctx, "m"), func() error { return errUnavailable })
			}
			testkit.Equal(t, "logged", len(logger.Captured()[watermill.ErrorLogLevel]), 0)
		}
	})
}
