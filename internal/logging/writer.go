package logging

import (
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

// writer calls the logger, which may hang or panic, from a goroutine for each line. The caller waits for its line, so
// that lines come in order and the last one of a program is not lost.
type writer struct {
	to      atomic.Pointer[watermill.LoggerAdapter] // nil until it is bound
	one     chan struct{}                           // holds a value while the logger is called
	waiting atomic.Int32                            // lines
	hangs   atomic.Bool                             // the logger did not return in time
}

func (w *writer) logger() watermill.LoggerAdapter {
	if to := w.to.Load(); to != nil {
		return *to
	}
	return nil
}

// write reports whether there was room for the line.
func (w *writer) write(e entry) bool {
	if w.waiting.Add(1) > maxQueue {
		w.waiting.Add(-1)
		return false
	}
	hangs, written := w.hangs.Load(), make(chan struct{})
	go func() {
		w.one <- struct{}{}
		defer func() {
			_ = recover() // a logger that panics, or calls runtime.Goexit, loses its line, and no message
			w.hangs.Store(false)
			w.waiting.Add(-1)
			<-w.one
			close(written)
		}()
		e.writeTo(w.logger())
	}()
	if hangs {
		return true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
		w.hangs.Store(true)
	}
	return true
}

func (e entry) writeTo(logger watermill.LoggerAdapter) {
	switch {
	case logger == nil:
	case e.level == watermill.ErrorLogLevel:
		logger.Error(e.text, e.err, e.fields)
	case e.level == watermill.InfoLogLevel:
		logger.Info(e.text, e.fields)
	case e.level == watermill.DebugLogLevel:
		logger.Debug(e.text, e.fields)
	default:
		logger.Trace(e.text, e.fields)
	}
}
