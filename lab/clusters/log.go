package main

import (
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// log counts the events of Spillway by their names. A storm of lines is no use to the person who reads them.
type log struct {
	*lines
	fields watermill.LogFields
}

type lines struct {
	mu    sync.Mutex
	count map[string]int
	shown bool
}

func newLog() log {
	return log{lines: &lines{count: make(map[string]int), shown: os.Getenv("VERBOSE") != ""}}
}

func (l log) add(message string, err error, fields watermill.LogFields) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name, ok := fields["event"].(string)
	if ok {
		l.count[name]++
	}
	if l.shown {
		fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), name, message, err, maps.Clone(fields))
	}
}

func (l log) Error(message string, err error, fields watermill.LogFields) {
	l.add(message, err, l.of(fields))
}
func (l log) Info(message string, fields watermill.LogFields) { l.add(message, nil, l.of(fields)) }
func (l log) Debug(string, watermill.LogFields)               {}
func (l log) Trace(string, watermill.LogFields)               {}

func (l log) of(fields watermill.LogFields) watermill.LogFields { return l.fields.Add(fields) }

// With returns a log with fields for each line.
func (l log) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return log{lines: l.lines, fields: l.of(fields)}
}

func (l log) counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.count)
}
