package wmamqp

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
)

// late logs errors that come after the end of a subscription or connection for debugging alone: watermill-amqp calls an
// error what is an orderly end. It nacks what it has in hand, on a channel that is closed and so gave it back already.
type late struct {
	watermill.LoggerAdapter
	over context.Context
}

func (l late) Error(msg string, err error, fields watermill.LogFields) {
	if l.over.Err() == nil {
		l.LoggerAdapter.Error(msg, err, fields)
		return
	}
	l.LoggerAdapter.Debug(msg, fields.Add(watermill.LogFields{"err": err}))
}

func (l late) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return late{l.LoggerAdapter.With(fields), l.over}
}
