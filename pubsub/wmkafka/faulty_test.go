package wmkafka

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// faulty is a dialer whose connections fall silent, as half-open ones are, or are refused, or stand still, as those of
// a paused process do.
type faulty struct {
	lock    sync.Mutex
	frozen  *sync.RWMutex
	silent  bool
	refuses bool
	refused int // connections
	conns   []net.Conn
}

func (f *faulty) set(silent, refuses bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.silent, f.refuses = silent, refuses
	if refuses {
		for _, conn := range f.conns {
			_ = conn.Close()
		}
	}
}

// freezer returns a lock. While it is held, connections that are made from now on stand still.
func (f *faulty) freezer() *sync.RWMutex {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.frozen = new(sync.RWMutex)
	return f.frozen
}

// refusals is how many connections were refused.
func (f *faulty) refusals() int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.refused
}

func (f *faulty) isSilent() bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.silent
}

func (f *faulty) Dial(network, address string) (net.Conn, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.refuses {
		f.refused++
		return nil, errors.New("connection refused")
	}
	conn, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	f.conns = append(f.conns, conn)
	return &silentConn{Conn: conn, faulty: f, frozen: f.frozen}, nil
}

// silentConn swallows what is written and answers nothing, until a deadline, while its dialer is silent.
type silentConn struct {
	net.Conn
	faulty *faulty
	frozen *sync.RWMutex
}

func (s *silentConn) Write(b []byte) (int, error) {
	if s.faulty.isSilent() {
		return len(b), nil
	}
	if s.frozen != nil {
		s.frozen.RLock()
		defer s.frozen.RUnlock()
	}
	return s.Conn.Write(b)
}

func (f *faulty) into(config *sarama.Config) {
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, f
}

// soon is into, and the group forgets a silent member as soon as the broker allows.
func (f *faulty) soon(config *sarama.Config) {
	f.into(config)
	config.Consumer.Group.Session.Timeout = 6 * time.Second
}

// Decision 4: Publish returns (within 30 s on a machine that is not busy), whether the broker is gone or has fallen
// silent, alone or with others, and publishes again when it is back.
func TestPublishIsBounded(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ silent, refuses, opens bool }{
		"gone": {refuses: true}, "silent": {silent: true}, "silent, while a producer is opened": {silent: true, opens: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // with the other one: nothing happens to the broker itself
			c := newCluster(t)
			dialer := &faulty{}
			pub := c.publisher(PublisherConfig{Sarama: dialer.into})
			if fault.opens {
				pub.config.linger = time.Millisecond // whose producer for what is waited for is not open
			}
			if !fault.opens {
				testkit.NoError(t, pub.Publish(c.topic, message.NewMessage("before", nil)))
			}
			dialer.set(fault.silent, fault.refuses)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					start := time.Now()
					err := pub.Publish(c.topic, message.NewMessage("during", nil))
					took := time.Since(start) // longer is a hang
					testkit.Check(t, err != nil && took <= 2*patience, "%v after %s", err, took)
				})
			}
			all.Wait()
			dialer.set(false, false)
			c.eventually("it publishes again", func() bool { return pub.Publish(c.topic, message.NewMessage("after", nil)) == nil })
		})
	}
}

// Promise P3: when the connection falls silent the subscription notices, cancels, and goes on when it is back.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(2)...)
	dialer := &faulty{}
	sub := c.subscriber(SubscriberConfig{Sarama: func(config *sarama.Config) {
		dialer.into(config)
		config.Net.ReadTimeout, config.Consumer.Group.Rebalance.Timeout = 4*time.Second, 3*time.Second
	}})
	messages := c.subscribe(sub)
	held := c.next(messages)
	dialer.set(true, false)
	testkit.Receive(t, "it notices", held.Context().Done())
	dialer.set(false, false)
	again := c.next(messages)
	testkit.Check(t, again.UUID == held.UUID && again.Ack(), "then came %q", again.UUID)
	c.next(messages)
	dialer.set(true, false)
	c.closes(sub)
}

// Feature P1: what Publish has confirmed is in the topic, whatever becomes of other messages of the same producer:
// connections are cut in the middle of batches, some messages are tried again, and some are refused for good.
func TestConfirmedIsThere(t *testing.T) {
	t.Parallel()
	const publishers, cuts = 32, 150
	c := newCluster(t)
	dialer := &faulty{}
	pub := c.publisher(PublisherConfig{Sarama: func(config *sarama.Config) {
		dialer.into(config)
		config.Producer.Retry.Max, config.Producer.Retry.Backoff = 1, 10*time.Millisecond
		config.Metadata.Retry.Backoff = 10 * time.Millisecond
	}})
	var mu sync.Mutex
	confirmed, refused := map[string]bool{}, 0
	done := make(chan struct{})
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", p, n)
				err := pub.Publish(c.topic, message.NewMessage(id, []byte(id)))
				mu.Lock()
				if err == nil {
					confirmed[id] = true
				} else {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	counts := func() (int, int) {
		mu.Lock()
		defer mu.Unlock()
		return len(confirmed), refused
	}
	for range cuts {
		before, _ := counts()
		for range 3 { // at most two in a row are refused to dial: sarama's breaker would open for 10 s
			dialer.set(false, true)
			dialer.set(false, false)
			time.Sleep(time.Millisecond) // so that some are sent again, and cut again
		}
		c.eventually("messages are confirmed", func() bool { n, _ := counts(); return n > before+publishers })
	}
	close(done)
	all.Wait()
	there := map[string]bool{}
	for _, record := range c.records(c.topic, 1) {
		there[string(record.Value)] = true
	}
	var missing []string
	for id := range confirmed {
		if !there[id] {
			missing = append(missing, id)
		}
	}
	testkit.Check(t, len(missing) == 0, "of %d confirmed messages %d are nowhere, %d were refused: %q", len(confirmed), len(missing),
		refused, missing[:min(len(missing), 20)])
}
