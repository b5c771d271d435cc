package wmamqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// connection is one to the broker, which is dialled again when it is lost, and its sockets, so that a peer that does not
// answer can hold up neither a write nor Close.
type connection struct {
	config  amqp.ConnectionConfig
	sockets *sockets
	logger  watermill.LoggerAdapter

	latest atomic.Pointer[amqp091.Connection]
	ending context.Context // ends when Close begins
	end    context.CancelFunc
	ended  chan struct{} // closed when nothing dials any more
}

func connect(config amqp.ConnectionConfig, writeTimeout time.Duration,
	logger watermill.LoggerAdapter) (*connection, error) {
	own, sockets, err := withSockets(config, writeTimeout)
	if err != nil {
		return nil, err
	}
	c := &connection{config: own, sockets: sockets, logger: logger, ended: make(chan struct{})}
	conn, err := c.dial()
	for tries := 1; err != nil && tries < sockets.nodes && !errors.Is(err, amqp091.ErrCredentials); tries++ {
		conn, err = c.dial() // a node that took the connection may not have answered
	}
	if err != nil {
		sockets.shut()
		return nil, fmt.Errorf("wmamqp: cannot connect: %w", err)
	}
	c.ending, c.end = context.WithCancel(context.Background())
	go c.keep(conn)
	return c, nil
}

func (c *connection) dial() (*amqp091.Connection, error) {
	conn, err := amqp091.DialConfig(c.config.AmqpURI, *c.config.AmqpConfig)
	if err == nil {
		c.latest.Store(conn)
	}
	return conn, err
}

// keep dials again whenever the connection is lost, until Close.
func (c *connection) keep(conn *amqp091.Connection) {
	defer close(c.ended)
	for conn != nil {
		var err error = amqp091.ErrClosed
		if reason := <-conn.NotifyClose(make(chan *amqp091.Error, 1)); reason != nil {
			err = reason
		}
		if c.ending.Err() != nil {
			return
		}
		begun := time.Now()
		eventConnectionLost.Write(c.logger, err, nil)
		if conn = c.dialAgain(); conn != nil {
			eventConnectionResumed.Write(c.logger, nil,
				logging.Fields{"lasted": time.Since(begun).Round(time.Millisecond).String()})
		}
	}
}

// dialAgain returns nil if Close begins before the broker answers.
func (c *connection) dialAgain() *amqp091.Connection {
	again := c.config.Reconnect
	wait := again.BackoffInitialInterval
	for event := eventConnectionNotDialled; c.ending.Err() == nil; event = eventConnectionStillUnavailable {
		conn, err := c.dial()
		if err == nil {
			return conn
		}
		event.Write(c.logger, err, nil)
		jitter := 1 + again.BackoffRandomizationFactor*(2*rand.Float64()-1)
		timing.Wait(c.ending, time.Duration(float64(wait)*jitter))
		wait = min(time.Duration(float64(wait)*again.BackoffMultiplier), again.BackoffMaxInterval)
	}
	return nil
}

var errNotConnected = hold.NewUnavailable("wmamqp: not connected to the broker, which is dialled again")

// open returns the connection, if there is one.
func (c *connection) open() (*amqp091.Connection, error) {
	conn := c.latest.Load()
	switch {
	case c.ending.Err() != nil:
		return nil, errors.New("wmamqp: the connection is closed")
	case conn.IsClosed():
		return nil, errNotConnected
	}
	return conn, nil
}

// declares repeats f, which declares, for some seconds while the broker fails at it: a quorum queue is not made if its
// members elect no leader within 5 s, on a node that is busy or has just started, and is made at the next call. The
// broker closes the connection with that answer.
func (c *connection) declares(f func(*amqp091.Connection) error) error {
	conn, failed := c.open()
	if failed == nil {
		failed = f(conn)
	}
	for deadline := time.Now().Add(30 * time.Second); refused(failed, amqp091.InternalError) &&
		time.Now().Before(deadline) && timing.Wait(c.ending, 100*time.Millisecond); {
		if conn, err := c.open(); err == nil {
			failed = f(conn)
		}
	}
	return failed
}

// withSockets returns config with a dialler that keeps account of its sockets.
func withSockets(config amqp.ConnectionConfig, writeTimeout time.Duration) (amqp.ConnectionConfig, *sockets, error) {
	own := amqp091.Config{Locale: "en_US"}
	if config.AmqpConfig != nil {
		own = *config.AmqpConfig
	}
	if config.TLSConfig != nil {
		if own.TLSClientConfig != nil {
			return config, nil, errors.New("wmamqp: ConnectionConfig.TLSConfig and AmqpConfig.TLSClientConfig are both set: give one")
		}
		own.TLSClientConfig, config.TLSConfig = config.TLSConfig, nil
	}
	several, first, err := nodesOf(config.AmqpURI, own.TLSClientConfig)
	if err != nil {
		return config, nil, err
	}
	config.AmqpURI = first
	uri, err := parseURI(config.AmqpURI)
	if err != nil {
		return config, nil, err
	}
	s := &sockets{dial: own.Dial, nodes: 1, writeTimeout: writeTimeout, all: make(map[net.Conn]struct{})}
	if s.dial == nil {
		timeout := 10 * time.Second
		if uri.ConnectionTimeout > 0 {
			timeout = time.Duration(uri.ConnectionTimeout) * time.Millisecond
		}
		s.dial = amqp091.DefaultDial(timeout)
	}
	if several != nil {
		s.dial, s.nodes = several.dialler(s.dial, s.refuses), len(several.all)
	}
	own.Dial = s.Dial
	config.AmqpConfig = &own
	return config, s, nil
}

// sockets are those of one connection: the one in use, and those on their way in or out.
type sockets struct {
	dial         func(network, addr string) (net.Conn, error)
	nodes        int // that dial knows
	writeTimeout time.Duration

	mu     sync.Mutex
	closed bool
	all    map[net.Conn]struct{}
}

// Dial is an amqp091.Config.Dial.
func (s *sockets) Dial(network, addr string) (net.Conn, error) {
	if s.refuses() {
		return nil, net.ErrClosed
	}
	conn, err := s.dial(network, addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	own := &socket{Conn: conn, of: s}
	s.all[own] = struct{}{}
	return own, nil
}

// refuse takes no new sockets.
func (s *sockets) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *sockets) refuses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// shut closes all sockets and takes no new ones.
func (s *sockets) shut() {
	s.refuse()
	s.cut()
}

// cut closes all sockets.
func (s *sockets) cut() {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

type socket struct {
	net.Conn
	of *sockets
}

// Write gives a peer that reads nothing a limited time: the client's writes have no other.
func (s *socket) Write(b []byte) (int, error) {
	if err := s.SetWriteDeadline(time.Now().Add(s.of.writeTimeout)); err != nil {
		return 0, err
	}
	return s.Conn.Write(b)
}

func (s *socket) Close() error {
	s.of.mu.Lock()
	delete(s.of.all, s)
	s.of.mu.Unlock()
	return s.Conn.Close()
}

var (
	errNoURI = errors.New("wmamqp: the AMQP URI is empty: give amqp://user:password@host:port/")
	// they hold passwords
	errTwoURIs = errors.New("wmamqp: AMQP.Connection.AmqpURI is another URI than the constructor's: leave it empty")
)

// setURI sets the URI to connect to, which may stand in c as watermill-amqp's own configurations have it.
func setURI(c *amqp.Config, uri string) error {
	switch c.Connection.AmqpURI {
	case "", uri:
		c.Connection.AmqpURI = uri
	default:
		return errTwoURIs
	}
	if uri == "" {
		return errNoURI
	}
	return nil
}

// setAMQPDefaults sets what is missing as amqp.NewDurableQueueConfig and watermill-amqp's constructors do.
func setAMQPDefaults(c *amqp.Config) {
	durable := amqp.NewDurableQueueConfig("")
	if c.Exchange.GenerateName == nil {
		c.Exchange.GenerateName = durable.Exchange.GenerateName
	}
	if c.Queue.GenerateName == nil {
		c.Queue.GenerateName, c.Queue.Durable = durable.Queue.GenerateName, true
	}
	if c.QueueBind.GenerateRoutingKey == nil {
		c.QueueBind.GenerateRoutingKey = durable.QueueBind.GenerateRoutingKey
	}
	if c.Publish.GenerateRoutingKey == nil {
		c.Publish.GenerateRoutingKey = durable.Publish.GenerateRoutingKey
	}
	if c.Marshaler == nil {
		c.Marshaler = Marshaler{}
	}
	if c.TopologyBuilder == nil {
		c.TopologyBuilder = &amqp.DefaultTopologyBuilder{}
	}
	if c.Connection.Reconnect == nil { // watermill-amqp's own waits up to a minute
		c.Connection.Reconnect = &amqp.ReconnectConfig{
			BackoffInitialInterval: 100 * time.Millisecond, BackoffRandomizationFactor: 0.5, BackoffMultiplier: 1.5,
			BackoffMaxInterval: 5 * time.Second,
		}
	}
}
