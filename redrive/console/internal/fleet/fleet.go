// Package fleet looks at several services at once. A service that does not answer holds up no other, and piles up
// nothing: of each service at most one call of its access function and one read of its database are in the air.
package fleet

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/apiclient"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
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
	return &Service{May: may, Read: read, asks: make(turn, 1), reads: make(turn, 1)}
}

// State is how a service stands, as its API says it.
type State struct {
	operate.HealthData
	Causes []operate.CauseData // of the letters that wait, the largest first
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

// ErrLate is the error of a service that gave no answer in time, or that still owes the answer to an earlier request.
var ErrLate = errors.New("no answer in time")

const (
	// mostRead bounds an answer, in bytes.
	mostRead = 1 << 20
	// mostText bounds a text of an answer, in bytes.
	mostText = 1 << 10
)

var settings = apiclient.Names{URL: "Config.URL", TokenFile: "Config.TokenFile"}

// OverAPI returns a client of the console at an address. No other address is ever asked.
func OverAPI(address, tokenFile string) (*apiclient.Client, error) {
	return apiclient.New(apiclient.Config{URL: address, TokenFile: tokenFile, Names: settings,
		Program: "a console of Spillway", MostRead: mostRead, Brief: true})
}

// Read returns the state of a service, with so many causes. Nothing of it is believed but its numbers: its texts are
// bounded here, and made safe where they are shown.
func Read(ctx context.Context, api *apiclient.Client, most int) (s State, err error) {
	if err := api.Get(ctx, &s.HealthData, nil, "health"); err != nil {
		return s, err
	}
	var list operate.CausesData
	err = api.Get(ctx, &list, url.Values{"limit": {strconv.Itoa(most)}}, "causes")
	s.Causes = list.Causes[:min(len(list.Causes), most)]
	for i := range s.Causes {
		c := &s.Causes[i]
		for _, text := range []*string{&c.Cause, &c.Class, &c.Handler, &c.Reason, &c.Description} {
			*text = boundedtext.Text(*text, mostText)
		}
	}
	return s, err
}

// Running is the number of campaigns that have not ended.
func (s State) Running() (n int) {
	for state, some := range s.Campaigns {
		if !campaigns.State(state).Ended() {
			n += max(0, some)
		}
	}
	return n
}

// asked is a service that was asked, and gives its answers one after the other.
type asked struct {
	may  chan Seen // has May, Note and Unknown
	read chan Seen // has State and Err
}

// Look asks all services at once. It returns what each has answered within the limit.
func Look(r *http.Request, services []*Service, limit time.Duration) []Seen {
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	all := make([]asked, len(services))
	for i, s := range services {
		all[i] = s.ask(ctx, r)
	}
	seen := make([]Seen, len(services))
	for i, a := range all {
		seen[i] = a.answer(ctx)
	}
	return seen
}

// ask asks a service in a goroutine of its own, which ends with ctx unless a function of the service goes on.
func (s *Service) ask(ctx context.Context, r *http.Request) asked {
	a := asked{may: make(chan Seen, 1), read: make(chan Seen, 1)}
	own := r.Clone(ctx) // an access function may change its request
	own.Body = http.NoBody
	go func() {
		var may Seen
		may.Unknown = s.asks.call(ctx, "console.Config.Access", func() (err error) {
			may.May, may.Note, err = s.May(own)
			return err
		})
		a.may <- may
		if may.Unknown != nil || !may.May {
			return
		}
		var read Seen
		read.Err = s.reads.call(ctx, "read the service", func() (err error) {
			read.State, err = s.Read(ctx)
			return err
		})
		a.read <- read
	}()
	return a
}

// answer waits for the answers until ctx ends.
func (a asked) answer(ctx context.Context) Seen {
	seen, ok := await(ctx, a.may)
	switch {
	case !ok:
		seen.Unknown = ErrLate
	case seen.Unknown == nil && seen.May:
		read, ok := await(ctx, a.read)
		if seen.State, seen.Err = read.State, read.Err; !ok {
			seen.Err = ErrLate
		}
	}
	return seen
}

// await prefers an answer that is there to the end of the time.
func await(ctx context.Context, answer <-chan Seen) (seen Seen, ok bool) {
	select {
	case seen = <-answer:
		return seen, true
	default:
	}
	select {
	case seen = <-answer:
		return seen, true
	case <-ctx.Done():
		return Seen{}, false
	}
}

// turn has the call that runs: one at a time.
type turn chan struct{}

// call calls f when its turn comes. The context has a deadline.
func (t turn) call(ctx context.Context, name string, f func() error) error {
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return ErrLate
	}
	defer func() { <-t }()
	return safecall.Call(name, f)
}
