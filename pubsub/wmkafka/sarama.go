package wmkafka

import (
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// defaultMaxMessageBytes is what Kafka's own default for a topic lets through, with room for a letter's metadata.
const defaultMaxMessageBytes = kafkaMaxMessageBytes + letterRoom

// subscriberDefaults returns what SubscriberConfig.Sarama is called with. What it sets, and why:
//
//   - it starts with the oldest message: what came before the first start is not skipped;
//   - messages of aborted transactions are not delivered;
//   - a heartbeat every second, so that a rebalance is noticed within one, and members that hold it up for more than 8
//     s are left out of it;
//   - time-outs with which a broker that has fallen silent is noticed within 30 s;
//   - no limit on the size of a record: the topic has one.
func subscriberDefaults() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "spillway"
	config.Net.DialTimeout = 5 * time.Second
	config.Net.ReadTimeout = 10 * time.Second // must be longer than a rebalance: the answer to a join comes after it
	config.Net.WriteTimeout = 5 * time.Second
	config.Metadata.Retry.Max = 1 // a heartbeat that failed so often ends the session
	config.Metadata.Timeout = 10 * time.Second
	config.Metadata.AllowAutoTopicCreation = false
	config.Consumer.Return.Errors = true
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Retry.Backoff = 500 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.Retry.Max = 1
	config.Consumer.Group.Heartbeat.Interval = time.Second
	config.Consumer.Group.Rebalance.Timeout = 8 * time.Second
	config.Consumer.Group.Rebalance.Retry.Max = 10
	config.Consumer.Group.Rebalance.Retry.Backoff = 500 * time.Millisecond
	return config
}

// publisherDefaults returns what PublisherConfig.Sarama is called with. What it sets, and why:
//
//   - acks from all replicas in sync, and a producer that is not idempotent: what was confirmed is there. Sarama's
//     idempotent producer (1.43.3, async_producer.go, returnError) begins a new epoch when it gives a record up.
//     Records that it tries again keep their old numbers, the broker takes them for others, and they are confirmed and
//     lost. Without it a record whose confirm was lost with the connection can be there twice, as after a restart;
//   - time-outs and retries with which Publish returns within 30 s, whatever the broker does not do;
//   - no topic comes into being by being published to: a topic that the broker makes up loses its letters after 7 days;
//   - sarama's hash partitioner: records with the same key go to the same partition. Its hash (FNV-1a) is not the one
//     of Java clients and librdkafka (murmur2): where those produce too, give Producer.Partitioner one that agrees.
func publisherDefaults() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "spillway"
	config.Net.DialTimeout = 3 * time.Second
	config.Net.ReadTimeout = 6 * time.Second
	config.Net.WriteTimeout = 3 * time.Second
	config.Net.MaxOpenRequests = 1 // or a record that is tried again comes behind later ones
	config.Metadata.Retry.Max = 2
	config.Metadata.Retry.Backoff = 200 * time.Millisecond
	config.Metadata.Timeout = 5 * time.Second
	config.Metadata.AllowAutoTopicCreation = false
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Timeout = 5 * time.Second
	config.Producer.Retry.Max = 3
	config.Producer.Retry.Backoff = 200 * time.Millisecond
	config.Producer.Return.Successes = true
	config.Producer.Return.Errors = true
	config.Producer.MaxMessageBytes = defaultMaxMessageBytes
	return config
}

const saramaPath = "github.com/IBM/sarama"

// saramaVersion is the version of sarama in this program, or "" if the build does not say, or a replacement is used.
func saramaVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, module := range info.Deps {
		if module.Path != saramaPath {
			continue
		}
		if module.Replace != nil {
			module = module.Replace
		}
		if module.Path == saramaPath {
			return module.Version
		}
	}
	return ""
}

// idempotentKeeps reports whether an idempotent producer of this version of sarama confirms only records that are there:
// 1.61.1 and later ones (its #3762, #3765 and #3768). A version that cannot be read does not count.
func idempotentKeeps(version string) bool {
	var major, minor, patch int
	release, before, prerelease := strings.Cut(version, "-")
	if n, err := fmt.Sscanf(release, "v%d.%d.%d", &major, &minor, &patch); n != 3 || err != nil {
		return false
	}
	if major != 1 || minor != 61 || patch != 1 {
		return major > 1 || major == 1 && (minor > 61 || minor == 61 && patch > 1)
	}
	return !prerelease && before == ""
}

// apart is a strategy under a name of its own. The broker admits a member only if it knows a strategy that all others
// know. So members that keep the order of keys, and members that do not, are never in a group at the same time: the
// second kind waits until the first has left.
type apart struct{ sarama.BalanceStrategy }

func (a apart) Name() string { return "spillway-ordered-" + a.BalanceStrategy.Name() }

// keptApart gives config strategies that members without an order of keys do not know.
func keptApart(config *sarama.Config) {
	rebalance := &config.Consumer.Group.Rebalance
	if rebalance.Strategy != nil { //nolint:staticcheck // a user may have set it
		rebalance.Strategy = apart{rebalance.Strategy}
	}
	strategies := make([]sarama.BalanceStrategy, len(rebalance.GroupStrategies))
	for i, s := range rebalance.GroupStrategies {
		strategies[i] = apart{s}
	}
	rebalance.GroupStrategies = strategies
}

// lastWords is how long a subscription that ends may talk to the brokers after settleGrace: to commit and to leave.
const lastWords = 5 * time.Second

// connections are those of a subscription. Its end would wait for every time-out of a broker that has fallen silent,
// one after the other, so they can be cut.
type connections struct {
	dialer interface {
		Dial(network, address string) (net.Conn, error)
	}

	lock sync.Mutex
	open map[*connection]struct{} // nil after the cut
}

type connection struct {
	net.Conn
	of *connections
}

var errCut = errors.New("wmkafka: the connection was cut, because its time is over")

// through returns a copy of config whose connections are those of the result.
func through(config *sarama.Config) (*sarama.Config, *connections) {
	own := *config
	cs := &connections{open: make(map[*connection]struct{}), dialer: config.Net.Proxy.Dialer}
	if !config.Net.Proxy.Enable {
		cs.dialer = &net.Dialer{Timeout: config.Net.DialTimeout, KeepAlive: config.Net.KeepAlive,
			LocalAddr: config.Net.LocalAddr}
	}
	own.Net.Proxy.Enable, own.Net.Proxy.Dialer = true, cs
	return &own, cs
}

// Dial connects as the configuration says, until the cut.
func (cs *connections) Dial(network, address string) (net.Conn, error) {
	cs.lock.Lock()
	cut := cs.open == nil
	cs.lock.Unlock()
	if cut {
		return nil, errCut
	}
	conn, err := cs.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	own := &connection{Conn: conn, of: cs}
	cs.lock.Lock()
	defer cs.lock.Unlock()
	if cs.open == nil {
		_ = conn.Close()
		return nil, errCut
	}
	cs.open[own] = struct{}{}
	return own, nil
}

// cut closes what is open, and nothing opens any more.
func (cs *connections) cut() {
	cs.lock.Lock()
	defer cs.lock.Unlock()
	for conn := range cs.open {
		_ = conn.Conn.Close()
	}
	cs.open = nil
}

// Close closes the connection and forgets it.
func (c *connection) Close() error {
	c.of.lock.Lock()
	delete(c.of.open, c)
	c.of.lock.Unlock()
	return c.Conn.Close()
}
