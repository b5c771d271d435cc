package logging

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

const (
	// patience is how long a message waits for its line. After that no message waits, until the logger returns.
	patience = 5 * time.Second
	// maxQueue bounds the lines that wait for a logger that hangs.
	maxQueue = 200
)

// entry is a line as the logger receives it.
type entry struct {
	level  watermill.LogLevel
	text   string
	err    error
	fields Fields
}

// writer calls the logger, which may hang or panic, from a goroutine that runs while there are lines. The caller waits
// for its line, so that lines come in order and the last one of a program is not lost.
type writer struct {
	to atomic.Pointer[watermill.LoggerAdapter] // nil until it is bound

	mu      sync.Mutex
	queue   []*job
	running bool
	hangs   bool // the logger did not return in time
}

// job is a line in the queue.
type job struct {
	entry entry
	done  chan struct{}
}

func (w *writer) logger() watermill.LoggerAdapter {
	if to := w.to.Load(); to != nil {
		return *to
	}
	return nil
}

// write reports whether there was room for the line.
func (c *core) write(e entry) bool { return c.writer.write(e) }

func (w *writer) write(e entry) bool {
	w.mu.Lock()
	if len(w.queue) >= maxQueue {
		w.mu.Unlock()
		return false
	}
	j := &job{entry: e, done: make(chan struct{})}
	w.queue = append(w.queue, j)
	starts, hangs := !w.running, w.hangs
	w.running = true
	w.mu.Unlock()
	if starts {
		go w.drain()
	}
	if hangs {
		return true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C:
		w.mu.Lock()
		w.hangs = len(w.queue) > 0 || w.running
		w.mu.Unlock()
	}
	return true
}

// drain writes lines until none waits.
func (w *writer) drain() {
	ended := false
	defer func() {
		if !ended { // the logger called runtime.Goexit
			go w.drain()
		}
	}()
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.running = false
			ended = true
			w.mu.Unlock()
			return
		}
		j := w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
		w.mu.Unlock()
		w.call(j)
	}
}

// call calls the logger with a line.
func (w *writer) call(j *job) {
	defer func() {
		_ = recover() // a logger that panics loses its line, and no message
		w.mu.Lock()
		w.hangs = false
		w.mu.Unlock()
		close(j.done)
	}()
	to := w.logger()
	if to == nil {
		return
	}
	switch e := &j.entry; e.level {
	case watermill.ErrorLogLevel:
		to.Error(e.text, e.err, e.fields)
	case watermill.InfoLogLevel:
		to.Info(e.text, e.fields)
	case watermill.DebugLogLevel:
		to.Debug(e.text, e.fields)
	default:
		to.Trace(e.text, e.fields)
	}
}
