package wmamqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// The time that Close has as a whole, whatever the peer does: closeWait for an orderly end, and forceWait for what is
// left when the sockets are closed.
const (
	closeWait = 3 * time.Second
	forceWait = time.Second
)

// limits are the ends of the two parts of closing. All steps of one Close share them.
type limits struct{ orderly, all context.Context }

// newLimits begins the time of a Close. The function returned frees its timers.
func newLimits(orderly time.Duration) (limits, func()) {
	now := time.Now()
	first, cancelFirst := context.WithDeadline(context.Background(), now.Add(orderly))
	all, cancelAll := context.WithDeadline(context.Background(), now.Add(orderly+forceWait))
	return limits{first, all}, func() { cancelFirst(); cancelAll() }
}

// within reports whether done is closed before the limit ends.
func within(limit context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-limit.Done():
		return false
	}
}

var errStillClosing = errors.New("wmamqp: the connection has not ended yet: its sockets are closed, and the rest " +
	"ends by itself")

// close ends the connection, by force where the broker does not answer in time.
//
// The order matters. The client tells the wrapper of an error and waits until the wrapper listens, without end. The
// wrapper no longer listens once it is closing. So the client's connection ends first, and then the wrapper.
func (c *connection) close(left limits) error {
	c.sockets.refuse()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conn := c.Connection(); conn != nil {
			_ = conn.Close()
			for range conn.NotifyClose(make(chan *amqp091.Error, 1)) { // closed when the wrapper has been told
			}
		}
		c.sockets.shut()
		c.log.release(c.ConnectionWrapper)
		_ = c.Close()
		c.log.release(c.ConnectionWrapper)
	}()
	if within(left.orderly, done) {
		return nil
	}
	c.sockets.shut()
	if within(left.all, done) {
		return nil
	}
	return errStillClosing
}

// The wrapper's own words, in which it says what its goroutine does. If they change, that goroutine may be left behind.
const (
	wrapperWaits = "handleConnectionClose is waiting for c.connected"
	wrapperHears = "handleConnectionClose is for connection or Pub/Sub close"
)

// The wrapper's words for each failed attempt to dial again, and for the end of an outage. If they change, each attempt
// is an Error line.
const (
	wrapperDials     = "Cannot reconnect to AMQP, retrying"
	wrapperConnected = "Connected to AMQP"
)

// connectionLog is the logger of a wrapper of our own. Watermill-amqp calls an error what is an orderly end: it dials
// again when it is told to close. From the beginning of Close on, that is logged at Debug. In an outage it calls each
// attempt to dial an error: the lost connection is the one Error line.
//
// It also ends the wrapper's goroutine: that one waits for a connection without end when the wrapper is closed while it
// has none.
type connectionLog struct {
	watermill.LoggerAdapter

	mu      sync.Mutex
	ended   bool // Close has begun
	dialled bool // in vain, since the connection was lost
	waits   bool
	wrapper wrapper // set when it is closed
}

// wrapper is what the log needs of a ConnectionWrapper.
type wrapper interface {
	Closed() bool
	IsConnected() bool
	Connected() chan struct{}
}

func newConnectionLog(logger watermill.LoggerAdapter) *connectionLog {
	return &connectionLog{LoggerAdapter: logger}
}

// A connection that was given has no log of ours: l is nil.

// end says that Close has begun.
func (l *connectionLog) end() {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended = true
	}
}

func (l *connectionLog) Error(msg string, err error, fields watermill.LogFields) {
	if l.hasEnded() {
		l.LoggerAdapter.Debug(msg, fields.Add(watermill.LogFields{"err": err}))
		return
	}
	if msg != wrapperDials {
		l.LoggerAdapter.Error(msg, err, fields)
		return
	}
	l.mu.Lock()
	first := !l.dialled
	l.dialled = true
	l.mu.Unlock()
	say := l.LoggerAdapter.Debug
	if first { // the loss is in the log, and this is the cause
		say = l.LoggerAdapter.Info
	}
	say(msg, fields.Add(watermill.LogFields{logging.Error: fmt.Sprint(err)}))
}

func (l *connectionLog) Info(msg string, fields watermill.LogFields) {
	if msg == wrapperConnected {
		l.mu.Lock()
		l.dialled = false
		l.mu.Unlock()
	}
	l.LoggerAdapter.Info(msg, fields)
}

func (l *connectionLog) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

func (l *connectionLog) Debug(msg string, fields watermill.LogFields) {
	l.LoggerAdapter.Debug(msg, fields)
	if msg == wrapperWaits || msg == wrapperHears {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waits = msg == wrapperWaits
		l.free()
	}
}

// release lets the wrapper's goroutine go on, now and whenever it waits again, until it sees that the wrapper is
// closed.
func (l *connectionLog) release(w wrapper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrapper = w
	l.free()
}

func (l *connectionLog) free() {
	if l.waits && l.wrapper != nil && l.wrapper.Closed() && !l.wrapper.IsConnected() {
		close(l.wrapper.Connected())
	}
}
