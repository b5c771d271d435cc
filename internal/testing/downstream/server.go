package downstream

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Mode is what a Server does with a call.
type Mode int

// The modes of a Server.
const (
	Up Mode = iota
	Away
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

// Choose gives each call the mode that choose returns for its id, except Away. A call of another id ends Up.
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
	_ = s.change(Away)
	s.served.Wait()
}

func (s *Server) change(mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && mode != Away {
		return errors.New("downstream: the server is closed")
	}
	s.mode = mode
	close(s.changed)
	s.changed = make(chan struct{})
	if s.server != nil && mode == Away {
		_ = s.server.Close()
		s.server = nil
	}
	if mode == Away || s.server != nil {
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
	case Failing, Away:
		w.WriteHeader(http.StatusInternalServerError)
	case Hanging:
		select {
		case <-r.Context().Done():
		case <-changed:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
}
