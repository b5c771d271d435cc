package conformance

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
)

// events is what a process writes: events, and all the rest for the log.
type events struct {
	mu   sync.Mutex
	text bytes.Buffer
	read int // up to here, lines have been looked at
	seen map[string]int
}

func (e *events) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text.Write(p)
	for {
		line, _, whole := bytes.Cut(e.text.Bytes()[e.read:], []byte("\n"))
		if !whole {
			return len(p), nil
		}
		e.read += len(line) + 1
		if event, ok := bytes.CutPrefix(line, []byte(eventPrefix)); ok {
			e.seen[string(event)]++
		}
	}
}

func (e *events) count(event ...any) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen[strings.TrimSuffix(fmt.Sprintln(event...), "\n")]
}

// all counts the events of a kind, whatever the message.
func (e *events) all(kind string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for event, times := range e.seen {
		if strings.HasPrefix(event, kind+" ") {
			n += times
		}
	}
	return n
}

func (e *events) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.text.String()
}
