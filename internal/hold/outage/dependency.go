// Package outage holds messages while something that Spillway itself needs is unavailable: a database of keys, a broker
// of outputs.
//
// A Dependency is one such thing. If a request fails because the thing is unavailable (see Unavailable), the error is
// not about the message. Dependency.Do then holds the message and tries again, and at last gives it back, uncounted.
// During an outage, one caller a second tries, and the others wait for the outcome. There is no goroutine, and every
// wait ends with the message's context.
//
// Failures count as an outage after a second. The dependency logs when an outage began, and when failures have stopped
// for two seconds.
//
// Some errors look like an outage and are about the message. Dependency.Do returns such an error after bounded time:
//
//   - A message that is refused while others pass: after maxRefusal, with ever longer waits between its attempts.
//   - A message that alone has its connection cut again and again: after maxRefusal, even if no other message passes. A
//     failure to connect in between shows an outage.
//   - A message whose work was interrupted maxInterruptions times in a row.
//   - If a broker that is reached nacks all messages (see Nacked): one message in each maxRefusal.
//
// The dependency remembers messages in this process alone, at most recent.Most of them.
package outage

import (
	"context"
	"database/sql/driver"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/hold/recent"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

const (
	// probeEvery is the time between two attempts during an outage, however many messages wait.
	probeEvery = time.Second
	// courtesy is how long the message that tried last lets others try first.
	courtesy = 100 * time.Millisecond
	// closedAfter is the number of failures in a row after which messages wait without an attempt of their own. One
	// failure can be the message's.
	closedAfter = 2
)

// Config configures a Dependency.
type Config struct {
	// Name is what it is, for log lines.
	Name string
	// MaxHold is how long a message is held at most before it is requeued. Default: see the function MaxHold.
	MaxHold time.Duration
	// Unavailable reports whether an error means that the thing is unavailable. Default: the function Unavailable.
	Unavailable func(error) bool
	// Lost reports whether an error means that the connection was lost under the request, which the request itself can
	// have caused. After maxInterruptions of these errors, Do returns the error. Default: none. With every client, Do
	// returns the error after maxRefusal if the message alone loses connections again and again.
	Lost func(error) bool
	// Nacked reports whether an error that is Unavailable may last for good, because a thing that is reached refuses by
	// itself. If all messages have it for maxRefusal, Do returns it for one message in each such time. Default: none.
	// Give the function Nacked if a message that is let go has another place to go to.
	Nacked func(error) bool
	// Logger receives a line when an outage begins, and one when it ends. Default: none.
	Logger watermill.LoggerAdapter
}

// Dependency is one thing that Spillway needs. It is safe for concurrent use.
type Dependency struct {
	config Config
	noting atomic.Bool // a success changes something

	mu       sync.Mutex
	failures int            // in a row
	next     time.Time      // of the next attempt
	latest   recent.Message // that failed
	latestAt time.Time      // and when
	waiting  int            // messages that wait now
	up       chan struct{}  // closed by a success
	episode  episode
	suspects suspects
	nacks    nacks
}

// New returns a Dependency.
func New(config Config) *Dependency {
	if config.Unavailable == nil {
		config.Unavailable = Unavailable
	}
	config.Logger = logging.Wrap(config.Logger, nil)
	return &Dependency{config: config, suspects: suspects{Memory: recent.For[suspect](forgotten)}}
}

// Do calls try on behalf of c's message. It returns nil, or try's error if the error is about the message. If try fails
// because the thing is unavailable, Do holds the message and calls try again, until ctx ends or MaxHold has passed.
// Then it returns an error that gives the message back. Pass the context in which try waits.
func (g *Dependency) Do(ctx context.Context, c *chain.Call, try func() error) error {
	var err error
	if !g.mustWait(c) {
		if err = try(); !g.holds(ctx, c, err) {
			return err
		}
	}
	return g.hold(ctx, c, try, err)
}

// hold calls try at the message's slots. err is the failure so far, or nil.
func (g *Dependency) hold(ctx context.Context, c *chain.Call, try func() error, err error) error {
	rest, of := hold.Rest(ctx, g.config.MaxHold, c.Held()), recent.Of(c)
	until := time.Now().Add(rest)
	defer hold.Holding(c, rest, g.config.Logger)()
	g.mu.Lock()
	g.episode.held++
	g.waiting++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.waiting--
	}()
	waits := ctx
	if !c.Acked() { // what is only held goes back when its subscription ends
		var done context.CancelFunc
		waits, done = graceful.Waits(ctx)
		defer done()
	}
	for g.slot(waits, of, until) {
		if err = try(); !g.holds(ctx, c, err) {
			return err
		}
	}
	return g.Requeue(c, err)
}

// Requeue returns the error that gives c's message back, uncounted. A message that its handler acked cannot come
// again: for it Requeue returns err.
func (g *Dependency) Requeue(c *chain.Call, err error) error {
	if err == nil {
		err = errWaited
	}
	if c.Acked() {
		return err
	}
	g.mu.Lock()
	g.episode.returned++
	g.mu.Unlock()
	return chain.Requeued(err)
}

// Interrupted is for work on c's message that failed with err because a connection was lost under it. It holds the
// message until ping succeeds, and returns the error that gives the message back. After maxInterruptions in a row it
// returns err. Call Settled when the work has succeeded.
func (g *Dependency) Interrupted(ctx context.Context, c *chain.Call, err error, ping func() error) error {
	g.mu.Lock()
	tooOften := g.suspects.interrupted(recent.Of(c), time.Now())
	g.mu.Unlock()
	g.noting.Store(true)
	if tooOften || c.Acked() {
		return err
	}
	if ping != nil {
		_ = g.Do(ctx, c, ping)
	}
	return g.Requeue(c, err)
}

// Settled forgets c's message.
func (g *Dependency) Settled(c *chain.Call) {
	if !g.noting.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.suspects.Forget(recent.Of(c))
	g.noting.Store(g.failures > 0 || g.suspects.Len() > 0)
}

// Report is an outage that goes on.
type Report struct {
	Name    string // what is unavailable
	Since   time.Time
	Waiting int // messages that are held
}

// Report returns the outage of the dependency that the log has, if there is one.
func (g *Dependency) Report() (Report, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Report{Name: g.config.Name, Since: g.episode.began, Waiting: g.waiting}, g.failures > 0 && g.episode.logged
}

// Owner is a part with a dependency of its own. A type is an Owner if it embeds an Owned, so no part exports a method
// with a type of this package.
type Owner interface{ dependency() *Dependency }

// Owned makes the type that embeds it an Owner. A public type embeds it under an unexported name.
type Owned struct{ of *Dependency }

// OwnedBy returns the Owned of a part with this dependency.
func OwnedBy(d *Dependency) Owned { return Owned{d} }

func (o Owned) dependency() *Dependency { return o.of }

// Of returns the dependency of a part.
func Of(part Owner) *Dependency { return part.dependency() }

const (
	// declaredAfter is how long attempts must have failed before the log calls it an outage. All requests in flight can
	// fail at one instant.
	declaredAfter = time.Second
	// calm is how long no attempt must have failed before the log says that the outage is over. Messages do not wait
	// for it.
	calm = 2 * time.Second
)

// episode is an outage in the log: failures with less than calm between them. The dependency's lock guards it.
type episode struct {
	began    time.Time      // of the first failure
	last     time.Time      // of the latest failure
	back     time.Time      // of the first success after it
	of       recent.Message // of the first failure
	several  bool           // messages failed
	logged   bool           // its begin
	watched  bool           // a timer looks for its end
	held     int            // messages that waited
	returned int            // of these, and others, given back
}

// isOf reports whether one message alone failed.
func (e *episode) isOf(of recent.Message) bool { return !e.several && e.of == of }

// failing notes a failure, and logs that an outage began. The caller holds mu.
func (g *Dependency) failing(of recent.Message, now time.Time, err error) {
	e := &g.episode
	if !e.logged && (e.last.IsZero() || !e.back.Before(e.last) && now.Sub(e.last) >= calm) {
		*e = episode{began: now, of: of, watched: e.watched, held: e.held, returned: e.returned}
	}
	e.last = now
	e.several = e.several || of != e.of
	if e.logged || now.Sub(e.began) < declaredAfter {
		return
	}
	e.logged = true
	eventOutageBegan.Write(g.config.Logger, err,
		logging.Fields{logging.Store: g.config.Name, logging.Since: e.began.UTC().Format(time.RFC3339Nano)})
}

// calming notes a success after failures. The caller holds mu.
func (g *Dependency) calming(now time.Time) {
	e := &g.episode
	e.back = now
	if !e.logged {
		e.held, e.returned = 0, 0
	} else if !e.watched {
		e.watched = true
		time.AfterFunc(calm, g.calmed)
	}
}

// calmed logs that an outage is over, if nothing failed for some time.
func (g *Dependency) calmed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, now := &g.episode, time.Now()
	e.watched = false
	if g.failures > 0 { // the next success looks again
		return
	}
	if rest := calm - now.Sub(e.last); rest > 0 {
		e.watched = true
		time.AfterFunc(rest, g.calmed)
		return
	}
	fields := logging.Fields{logging.Store: g.config.Name,
		"lasted":     e.back.Sub(e.began).Round(time.Millisecond).String(),
		logging.Held: e.held, "given_back": e.returned}
	*e = episode{}
	eventOutageEnded.Write(g.config.Logger, nil, fields)
}

// link is what an error says of the connection.
type link int

const (
	disconnected link = iota // there is none, or the server itself says that it is out of order
	unclear                  // it is lost, and the error does not say when
	cut                      // there was one, and it was lost under the request
)

// linkOf reports what an error that is Unavailable says of the connection. A failure to connect counts before what
// caused it: a proxy cuts what it cannot pass on.
func linkOf(err error) (found link) {
	_ = safecall.Call("an error", func() error { // whose method can panic
		found = readLink(err)
		return nil
	})
	return found
}

var (
	cuts   = []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED}
	losses = []error{driver.ErrBadConn, net.ErrClosed, io.ErrClosedPipe}
)

func readLink(err error) (found link) {
	for one := range errs.All(err) {
		switch {
		case slices.Contains(cuts, one):
			found = cut
		case slices.Contains(losses, one):
			found = max(found, unclear)
		case cannotConnect(one):
			return disconnected
		case foreign.Says(one.Error(), foreign.Cut):
			found = cut
		case foreign.Says(one.Error(), foreign.Lost):
			found = max(found, unclear)
		}
	}
	return found
}

func cannotConnect(err error) bool {
	switch e := err.(type) {
	case *net.OpError:
		return e.Op == "dial"
	case *net.DNSError, *hold.Unavailable:
		return true
	}
	return foreign.ErrorOf(err).Kind == foreign.Connect || foreign.Says(err.Error(), foreign.Unconnected)
}

// Outages, and the breaker.
var (
	// outage: Repair the store or publisher.
	eventOutageBegan = logging.ErrorEvent("outage_began",
		"An outage began; messages are held, and requeued uncounted, until it is over")
	// outage: nothing
	eventOutageEnded = logging.InfoEvent("outage_ended", "The outage is over")
)
