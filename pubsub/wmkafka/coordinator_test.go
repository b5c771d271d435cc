package wmkafka

import (
	"encoding/binary"
	"io"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

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
	asked  map[uint32]bool // correlation ids of questions for a coordinator
	answer []byte          // what is left of one
}

const findCoordinator = 10

// Write gets one request, as sarama writes it.
func (c *unsettledConn) Write(request []byte) (int, error) {
	if len(request) >= 12 && binary.BigEndian.Uint16(request[4:]) == findCoordinator {
		c.mu.Lock()
		if c.asked == nil {
			c.asked = map[uint32]bool{}
		}
		c.asked[binary.BigEndian.Uint32(request[8:])] = true
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
		asked := c.asked[binary.BigEndian.Uint32(c.answer[4:])]
		c.mu.Unlock()
		if asked && c.of.refuses.Add(-1) >= 0 { // size, correlation id, throttle time
			binary.BigEndian.PutUint16(c.answer[12:], uint16(sarama.ErrConsumerCoordinatorNotAvailable))
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
