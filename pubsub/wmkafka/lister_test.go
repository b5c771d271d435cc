package wmkafka

import (
	"context"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/draining"
)

// It ends with its context, with what the broker does not answer, and with the publisher; the error names the prefix.
func TestListWaitingEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer := &faulty{}
	pub := c.publisher(PublisherConfig{Sarama: func(config *sarama.Config) {
		dialer.into(config)
		config.Net.ReadTimeout = time.Hour // so that the client alone would never end
	}})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := testkit.Err(pub.ListWaiting(ended, c.topic))
	testkit.Is(t, err, context.Canceled)
	testkit.Says(t, err, c.topic)
	dialer.set(true, false)
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, ctx := range []context.Context{soon, t.Context()} {
		testkit.Within(t, "it ends", func() {
			testkit.Is(t, testkit.Err(pub.ListWaiting(ctx, c.topic)), context.DeadlineExceeded)
		})
	}
	dialer.set(false, false)
	testkit.NoError(t, pub.Close())
	testkit.Is(t, testkit.Err(pub.ListWaiting(t.Context(), c.topic)), ErrClosed)
}

// Feature V5: a dry run of a drain commits nothing, and a drain that was cut off goes on where its group is.
func TestDraining(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.create(c.topic+".dlq", 1, nil)
	c.deleteLater(c.topic+".dlq.parked", c.topic+".dlq.quarantine")
	draining.Test(t, draining.Broker{
		Topic: c.topic, Publisher: c.publisher(PublisherConfig{}),
		Subscriber: func() draining.Subscriber { return c.subscriber(SubscriberConfig{}) },
		InDoubt:    1,
	})
}

// Browse reads all partitions, begins behind what the group committed, and needs no topic that has messages.
func TestBrowse(t *testing.T) {
	t.Parallel()
	c := newPartitioned(t, 3)
	sub := c.subscriber(SubscriberConfig{})
	browse := func(most int) (n int) {
		testkit.NoError(t, sub.Browse(t.Context(), c.topic, func(msg *message.Message) bool {
			n++
			testkit.Check(t, Origin(msg).Topic == c.topic && Origin(msg).ConsumerGroup == c.group, "another's message")
			return n < most
		}))
		return n
	}
	testkit.Equal(t, "before", browse(100), 0)
	records := numbered(6)
	for i, record := range records {
		record.Partition = int32(i % 3)
	}
	c.produce(records...)
	testkit.Equal(t, "all", browse(100), 6)
	testkit.Equal(t, "some", browse(2), 2)
	missing := sub.Browse(t.Context(), c.topic+".missing", func(*message.Message) bool { return true })
	testkit.Check(t, missing != nil, "a topic that is missing is no error")
}

// unsettled is a dialer of connections to a cluster that answers the first questions for a group's coordinator as one
// does that has no topic of offsets yet.
type unsettled struct{ refuses atomic.Int32 }

func (u *unsettled) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &unsettledConn{Conn: conn, of: u}, err
}

type unsettledConn struct {
	net.Conn
	of *unsettled

	mu     sync.Mutex
	asked  map[uint32]uint16 // the version of each question for a coordinator, by its correlation id
	answer []byte            // what is left of one
}

const findCoordinator = 10

// Write gets one request, as sarama writes it.
func (c *unsettledConn) Write(request []byte) (int, error) {
	if len(request) >= 12 && binary.BigEndian.Uint16(request[4:]) == findCoordinator {
		c.mu.Lock()
		if c.asked == nil {
			c.asked = map[uint32]uint16{}
		}
		c.asked[binary.BigEndian.Uint32(request[8:])] = binary.BigEndian.Uint16(request[6:])
		c.mu.Unlock()
	}
	return c.Conn.Write(request)
}

func (c *unsettledConn) Read(b []byte) (int, error) {
	if len(c.answer) == 0 {
		var size [4]byte
		if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
			return 0, err
		}
		c.answer = append(size[:], make([]byte, binary.BigEndian.Uint32(size[:]))...)
		if _, err := io.ReadFull(c.Conn, c.answer[4:]); err != nil {
			return 0, err
		}
		c.mu.Lock()
		version, asked := c.asked[binary.BigEndian.Uint32(c.answer[4:])]
		c.mu.Unlock()
		if asked && c.of.refuses.Add(-1) >= 0 {
			at := 12 // behind size, correlation id and throttle time
			if version >= 3 {
				at++ // the header's tagged fields
			}
			binary.BigEndian.PutUint16(c.answer[at:], uint16(sarama.ErrConsumerCoordinatorNotAvailable))
		}
	}
	n := copy(b, c.answer)
	c.answer = c.answer[n:]
	return n, nil
}

// Feature R5 (abandoned stages): the search for messages in removed stages asks a new cluster again that has no
// coordinator yet, as Backlog and Browse do.
func TestCoordinatorComesLate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(3)...)
	for name, ask := range map[string]func(func(*sarama.Config)) (int, error){
		"ListWaiting": func(config func(*sarama.Config)) (int, error) {
			found, err := c.publisher(PublisherConfig{Sarama: config}).ListWaiting(t.Context(), c.topic)
			testkit.Check(t, maps.Equal(found, map[string]int{c.topic: 3}), "ListWaiting: %v", found)
			return found[c.topic], err
		},
		"Backlog": func(config func(*sarama.Config)) (int, error) {
			return c.subscriber(SubscriberConfig{Sarama: config}).Backlog(t.Context(), c.topic)
		},
		"Browse": func(config func(*sarama.Config)) (n int, err error) {
			err = c.subscriber(SubscriberConfig{Sarama: config}).Browse(t.Context(), c.topic, func(*message.Message) bool { n++; return true })
			return n, err
		},
	} {
		dialer := &unsettled{}
		n, err := ask(func(config *sarama.Config) {
			config.Consumer.Offsets.Initial = sarama.OffsetOldest
			config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, dialer
			dialer.refuses.Store(int32(2 * (config.Metadata.Retry.Max + 1))) // the client itself asks again so often
		})
		testkit.Check(t, err == nil && n == 3, "%s: %d, %v", name, n, err)
		testkit.Check(t, dialer.refuses.Load() < 0, "%s: the coordinator was not asked for so often", name)
	}
}
