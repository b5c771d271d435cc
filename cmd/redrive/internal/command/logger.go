package command

import (
	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
)

// logger prints the errors of clients as notes, and nothing else.
func (a *app) logger() watermill.LoggerAdapter { return noteLogger{a.screen} }

type noteLogger struct{ screen *screen.Screen }

func (l noteLogger) Error(msg string, err error, _ watermill.LogFields) {
	l.screen.Note("%s: %v", msg, err)
}
func (noteLogger) Info(string, watermill.LogFields)                   {}
func (noteLogger) Debug(string, watermill.LogFields)                  {}
func (noteLogger) Trace(string, watermill.LogFields)                  {}
func (l noteLogger) With(watermill.LogFields) watermill.LoggerAdapter { return l }
