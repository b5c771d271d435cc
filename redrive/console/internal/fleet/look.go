package fleet

import (
	"context"
	"net/http"
	"time"
)

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
