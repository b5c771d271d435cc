package logging

import (
	"maps"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
)

// Late is a logger that drops its lines until Bind gives it a logger to pass them to.
type Late struct {
	bound  *atomic.Pointer[watermill.LoggerAdapter] // shared with what With returned
	fields watermill.LogFields
}

// NewLate returns a Late without a logger.
func NewLate() *Late { return &Late{bound: new(atomic.Pointer[watermill.LoggerAdapter])} }

// Bind gives l its logger. Later calls have no effect.
func (l *Late) Bind(logger watermill.LoggerAdapter) {
	if logger != nil {
		l.bound.CompareAndSwap(nil, &logger)
	}
}

// Error passes the line to the bound logger.
func (l *Late) Error(msg string, err error, fields watermill.LogFields) {
	if to := l.to(); to != nil {
		to.Error(msg, err, l.with(fields))
	}
}

// Info passes the line to the bound logger.
func (l *Late) Info(msg string, fields watermill.LogFields) {
	if to := l.to(); to != nil {
		to.Info(msg, l.with(fields))
	}
}

// Debug passes the line to the bound logger.
func (l *Late) Debug(msg string, fields watermill.LogFields) {
	if to := l.to(); to != nil {
		to.Debug(msg, l.with(fields))
	}
}

// Trace passes the line to the bound logger.
func (l *Late) Trace(msg string, fields watermill.LogFields) {
	if to := l.to(); to != nil {
		to.Trace(msg, l.with(fields))
	}
}

// With returns a logger that is bound together with l and adds fields to each line.
func (l *Late) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return &Late{bound: l.bound, fields: l.with(fields)}
}

func (l *Late) to() watermill.LoggerAdapter {
	if to := l.bound.Load(); to != nil {
		return *to
	}
	return nil
}

func (l *Late) with(fields watermill.LogFields) watermill.LogFields {
	if len(l.fields) == 0 {
		return fields
	}
	all := maps.Clone(l.fields)
	maps.Copy(all, fields)
	return all
}

// IsSilent reports whether logger drops every line, so that its fields need not be built.
func IsSilent(logger watermill.LoggerAdapter) bool {
	if log, ok := logger.(*Log); ok {
		logger = log.core.writer.to
	}
	if late, ok := logger.(*Late); ok {
		logger = late.to()
	}
	if logger == nil {
		return true
	}
	_, nop := logger.(watermill.NopLogger)
	return nop
}
