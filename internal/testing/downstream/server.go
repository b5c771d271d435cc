// Package downstream is a service that message handlers call over HTTP, whose failures a test chooses. It runs in the
// test's process, on a real TCP port, so a handler in another process can call it too.
//
// A [Server] is up at first. [Server.Set] changes what it does with each call:
//
//   - [Up] answers.
//   - [Unavailable] closes the port and all connections: a call ends with "connection refused", or with EOF on a
//     connection
//     that was open.
//   - [Busy] answers 503 with Retry-After.
//   - [Failing] answers 500.
//   - [Hanging] answers nothing until the caller hangs up.
//
// [Server.Flap] alternates between two of them, and [Server.Choose] decides by the id of the message. The server counts
// the calls that it received, by id: a call that was refused never came, and the caller counts it.
//
// [Client.Call] is what a handler does: it calls the service with a message's id, and returns the error as an
// application would, without a mark, unless the answer says when to come again.
package downstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/classify"
)

// Mode is what a Server does with a call.
type Mode int

// The modes of a Server.
const (
	Up Mode = iota
	Unavailable
	Busy
	Failing
	Hanging
)

var names = []string{"up", "away", "busy", "failing", "hanging"}

// String returns the name of the mode.
func (m Mode) String() string {
	if m < 0 || int(m) >= len(names) {
		return fmt.Sprintf("Mode(%d)", int(m))
	}
	return names[m]
}

// Call is one call that the server received.
type Call struct {
	ID   string
	At   time.Time
	Mode Mode
}

// Server is the service. Its methods may be called at any time.
type Server struct {
	address string

	mu         sync.Mutex
	mode       Mode
	choose     func(id string) Mode
	retryAfter time.Duration
	changed    chan struct{} // closed when mode changes
	server     *http.Server  // nil while away
	served     sync.WaitGroup
	calls      []Call
	flapping   chan struct{} // closed to end it
	flapped    sync.WaitGroup
	closed     bool
}

// New starts a server that is up.
func New() (*Server, error) {
	s := &Server{retryAfter: time.Second, changed: make(chan struct{})}
	if err := s.listen("127.0.0.1:0"); err != nil {
		return nil, err
	}
	return s, nil
}

// Addr returns the server's host:port, which stays the same.
func (s *Server) Addr() string { return s.address }

// RetryAfter sets the least wait that answers of Busy ask for, in whole seconds. Default: 1 s.
func (s *Server) RetryAfter(wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retryAfter = wait
}

// Set changes the mode, and ends Flap and Choose. Calls that hang end with an error. Set fails only if another process
// took the port meanwhile.
func (s *Server) Set(mode Mode) error {
	s.still()
	s.mu.Lock()
	s.choose = nil
	s.mu.Unlock()
	return s.change(mode)
}

// Choose gives each call the mode that choose returns for its id, except Unavailable. A call of another id ends Up.
func (s *Server) Choose(choose func(id string) Mode) error {
	if err := s.Set(Up); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.choose = choose
	return nil
}

// Flap is up for a time, then in mode for a time, and so on until Set.
func (s *Server) Flap(mode Mode, up, down time.Duration) error {
	if err := s.Set(Up); err != nil {
		return err
	}
	over := make(chan struct{})
	s.mu.Lock()
	s.flapping = over
	s.mu.Unlock()
	s.flapped.Go(func() {
		for {
			for _, turn := range []struct {
				lasts time.Duration
				next  Mode
			}{{up, mode}, {down, Up}} {
				select {
				case <-over:
					return
				case <-time.After(turn.lasts):
				}
				if err := s.change(turn.next); err != nil {
					return // the calls are refused, which is a failure too
				}
			}
		}
	})
	return nil
}

// still ends flapping.
func (s *Server) still() {
	s.mu.Lock()
	if s.flapping != nil {
		close(s.flapping)
		s.flapping = nil
	}
	s.mu.Unlock()
	s.flapped.Wait()
}

// Calls returns the calls that the server received, in their order.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Count returns how many calls the server received.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// ByID returns how often the server answered a call of each id with success.
func (s *Server) ByID() map[string]int {
	counts := map[string]int{}
	for _, call := range s.Calls() {
		if call.Mode == Up {
			counts[call.ID]++
		}
	}
	return counts
}

// Close ends the server and returns when none of its goroutines is left.
func (s *Server) Close() {
	s.still()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.change(Unavailable)
	s.served.Wait()
}

func (s *Server) change(mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && mode != Unavailable {
		return errors.New("downstream: the server is closed")
	}
	s.mode = mode
	close(s.changed)
	s.changed = make(chan struct{})
	if s.server != nil && mode == Unavailable {
		_ = s.server.Close()
		s.server = nil
	}
	if mode == Unavailable || s.server != nil {
		return nil
	}
	return s.listen(s.address)
}

func (s *Server) listen(address string) error {
	listener, err := net.Listen("tcp", address)
	for began := time.Now(); err != nil && s.address != "" && time.Since(began) < 10*time.Second; {
		time.Sleep(20 * time.Millisecond) // a connection of another process may have the port for a moment
		listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		return fmt.Errorf("downstream: %w", err)
	}
	s.address = listener.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(s.answer)}
	s.server = server
	s.served.Go(func() { _ = server.Serve(listener) })
	return nil
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	s.mu.Lock()
	mode, wait, changed := s.mode, s.retryAfter, s.changed
	if s.choose != nil && mode == Up {
		mode = s.choose(id)
	}
	s.calls = append(s.calls, Call{id, time.Now(), mode})
	s.mu.Unlock()
	switch mode {
	case Busy:
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Round(time.Second).Seconds())))
		w.WriteHeader(http.StatusServiceUnavailable)
	case Failing, Unavailable:
		w.WriteHeader(http.StatusInternalServerError)
	case Hanging:
		select {
		case <-r.Context().Done():
		case <-changed:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
}

// Client calls a Server.
type Client struct {
	address string
	timeout time.Duration
	http    *http.Client
}

// NewClient returns a client of the server at an address. A call without an answer ends after timeout. Close the
// client.
func NewClient(address string, timeout time.Duration) *Client {
	return &Client{address, timeout, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

// Call asks the service to do what the message with the id is about. Its error is the transport's own, wrapped. A 503
// answer with Retry-After becomes classify.Unavailable with that wait, and any other failure an error without a mark.
func (c *Client) Call(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.address+"/?id="+url.QueryEscape(id),
		nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("call the downstream: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return nil
	}
	err = fmt.Errorf("the downstream answered %s", response.Status)
	if seconds, bad := strconv.Atoi(response.Header.Get("Retry-After")); bad == nil {
		return classify.Unavailable(err, classify.RetryAfter(time.Duration(seconds)*time.Second))
	}
	return err
}

// Close closes the client's idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
