package wmamqp

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
)

// late tells of errors that come after the end of a subscription for debugging alone: watermill-amqp nacks what it has in
// hand then, on a channel that is closed, and that gave it back.
type late struct {
	watermill.LoggerAdapter
	subscription context.Context
}

func (l late) Error(msg string, err error, fields watermill.LogFields) {
	if l.subscription.Err() == nil {
		l.LoggerAdapter.Error(msg, err, fields)
		return
	}
	l.LoggerAdapter.Debug(msg, fields.Add(watermill.LogFields{"err": err}))
}

func (l late) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return late{l.LoggerAdapter.With(fields), l.subscription}
}
