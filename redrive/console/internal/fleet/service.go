package fleet

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Service is one service of a fleet. Its functions may panic, and may go on for longer than their context.
type Service struct {
	// May reports whether the person who sends a request may see the service, and what there is to say about the person.
	May func(*http.Request) (may bool, note string, err error)
	// Read returns the state of the service.
	Read func(context.Context) (State, error)

	asks, reads turn
}

// New returns a Service.
func New(may func(*http.Request) (bool, string, error), read func(context.Context) (State, error)) *Service {
	return &Service{May: may, Read: read, asks: turn{taken: make(chan struct{}, 1)},
		reads: turn{taken: make(chan struct{}, 1)}}
}

// State is how a service stands.
type State struct {
	Waiting, FailedAgain int             // letters
	Oldest               time.Time       // the first failure of the letter that waits longest
	Campaigns, Stopped   int             // campaigns under way, and those that stopped themselves
	Causes               []letters.Group // of the letters that wait, the largest first
}

// Seen is a service as the person of one request may see it.
type Seen struct {
	May  bool
	Note string
	// Unknown is why it is not known whether the person may see the service.
	Unknown error
	State   State
	// Err is why there is no State.
	Err error
}

var (
	// ErrLate is the error of a service that gave no answer in time.
	ErrLate = errors.New("no answer in time")
	// ErrBusy is the error of a service that still owes the answer to an earlier request. It is not asked again.
	ErrBusy = errors.New("an earlier request has no answer yet")
)
