package testkit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
)

// Line is one line of a Log.
type Line struct {
	Level  watermill.LogLevel
	Text   string
	Err    error
	Fields watermill.LogFields // its own and those of With
}

func (l Line) String() string { return fmt.Sprintf("%s: %v %v", l.Text, l.Err, l.Fields) }

// Log is a logger that keeps its lines. The zero value is ready.
type Log struct {
	mu    sync.Mutex
	lines []Line
}

var _ watermill.LoggerAdapter = (*Log)(nil)

func (l *Log) Error(text string, err error, fields watermill.LogFields) {
	l.add(Line{watermill.ErrorLogLevel, text, err, fields})
}
func (l *Log) Info(text string, fields watermill.LogFields) {
	l.add(Line{watermill.InfoLogLevel, text, nil, fields})
}
func (l *Log) Debug(text string, fields watermill.LogFields) {
	l.add(Line{watermill.DebugLogLevel, text, nil, fields})
}
func (l *Log) Trace(text string, fields watermill.LogFields) {
	l.add(Line{watermill.TraceLogLevel, text, nil, fields})
}

// With returns a logger that keeps its lines here.
func (l *Log) With(fields watermill.LogFields) watermill.LoggerAdapter { return with{l, fields} }

func (l *Log) add(line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line.Fields = maps.Clone(line.Fields)
	l.lines = append(l.lines, line)
}

// Lines returns the lines of a level whose text contains words, in their order.
func (l *Log) Lines(level watermill.LogLevel, words string) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line Line) bool {
		return line.Level != level || !strings.Contains(line.Text, words)
	})
}

// Errors returns the lines of errors.
func (l *Log) Errors() []Line { return l.Lines(watermill.ErrorLogLevel, "") }

// Has reports whether a line of any level has these words in its text and this value in its fields.
func (l *Log) Has(words, field string, value any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line Line) bool {
		return strings.Contains(line.Text, words) && line.Fields[field] == value
	})
}

// Is reports whether the error of a line is target.
func (l *Log) Is(target error) bool {
	return slices.ContainsFunc(l.Errors(), func(line Line) bool { return errors.Is(line.Err, target) })
}

// StandsFor returns how many events lines tell of: a line with the field repeated is one for so many.
func StandsFor(lines []Line) (n int) {
	for _, line := range lines {
		if repeated, ok := line.Fields["repeated"].(int); ok {
			n += repeated
		} else {
			n++
		}
	}
	return n
}

type with struct {
	to     *Log
	fields watermill.LogFields
}

func (w with) Error(text string, err error, fields watermill.LogFields) {
	w.to.Error(text, err, w.fields.Add(fields))
}
func (w with) Info(text string, fields watermill.LogFields)  { w.to.Info(text, w.fields.Add(fields)) }
func (w with) Debug(text string, fields watermill.LogFields) { w.to.Debug(text, w.fields.Add(fields)) }
func (w with) Trace(text string, fields watermill.LogFields) { w.to.Trace(text, w.fields.Add(fields)) }
func (w with) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return with{w.to, w.fields.Add(fields)}
}
