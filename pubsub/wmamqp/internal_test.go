package wmamqp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func consumerWith(ctx context.Context, config SubscriberConfig) *consumer {
	config.Logger = logging.Wrap(watermill.NopLogger{}, nil)
	return &consumer{sub: &subscription{config: &config, ctx: ctx}}
}

// Promise P3: a message that was acked when the grace after its context ended is acked, however late the process comes
// to look. A pause of the process ends both, and a select takes any.
func TestAckedAtTheEndOfTheGrace(t *testing.T) {
	c := consumerWith(t.Context(), SubscriberConfig{settleGrace: time.Nanosecond})
	for round := range 1000 {
		d := &delivery{of: c, msg: message.NewMessage("m", nil)}
		d.msg.Ack()
		testkit.Require(t, c.grace(d), "round %d: it is requeued", round)
	}
}

// Promise P4: the waits of a message that is nacked again and again double to their bound, and stay there.
func TestPausesStayAtTheirBound(t *testing.T) {
	for _, first := range []time.Duration{1, 100 * time.Millisecond, 20 * time.Second, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			most := max(first, 36*time.Hour)
			c := consumerWith(t.Context(), SubscriberConfig{nackBackoff: first, maxNackBackoff: most})
			want := first
			for i := range 100 {
				began := time.Now()
				c.pause()
				waited := time.Since(began)
				testkit.Require(t, waited == want, "from %s on: the wait %d is %s, want %s", first, i, waited, want)
				if want *= 2; want > most {
					want = most
				}
			}
		})
	}
}

func TestNodesOfURI(t *testing.T) {
	for uri, want := range map[string][]string{ // what the client gets, and the addresses
		"a,b":                              {"a,b"}, // and the client refuses it
		"amqp://h:5672/":                   {"amqp://h:5672/"},
		"amqp://u:p,q@h/":                  {"amqp://u:p,q@h/"},
		"amqp://u:p,q@a,b:7/v?heartbeat=5": {"amqp://u:p,q@a:5672/v?heartbeat=5", "a:5672", "b:7"},
		"amqps://u:p@a,b:7,[::1]/%2F?frame_max=9": {"amqp://u:p@a:5671/%2F?frame_max=9", "a:5671", "b:7", "[::1]:5671"},
		"amqp://a,b": {"amqp://a:5672", "a:5672", "b:5672"},
	} {
		n, client, err := nodesOf(uri, nil)
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		got := []string{client}
		if n != nil {
			for _, one := range n.all {
				got = append(got, one.address)
			}
			testkit.Check(t, (n.tls != nil) == strings.HasPrefix(uri, "amqps"), "%s: TLS %t", uri, n.tls != nil)
		}
		testkit.Check(t, slices.Equal(got, want), "%s: %q, want %q", uri, got, want)
	}
	for _, uri := range []string{"amqp://u:secret@a,,b/", "amqp://u:secret@a:x,b/", "http://u:secret@a,b/", "amqp://u:secret@a b,c/"} {
		n, _, err := nodesOf(uri, nil)
		testkit.Check(t, err != nil && !strings.Contains(err.Error(), "secret"), "%s: %+v, %v", uri, n, err)
	}
}

// Bad input: with TLS each node is known by its own name, and one with another is passed over.
func TestNodesHaveTheirNames(t *testing.T) {
	server := httptest.NewTLSServer(nil) // whose certificate is for 127.0.0.1, and not for localhost
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	testkit.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	n, _, err := nodesOf("amqps://localhost:"+port+",127.0.0.1:"+port+"/", &tls.Config{RootCAs: pool})
	testkit.NoError(t, err)
	for range 2 {
		conn := testkit.Must(n.dialler(net.Dial, func() bool { return false })("tcp", ""))
		if name := conn.(*tls.Conn).ConnectionState().ServerName; name != "" { // Go sends no address as a name
			t.Errorf("the node is %q", name)
		}
		_ = conn.Close()
	}
	n.all = n.all[:1]
	if conn, err := n.dialler(net.Dial, func() bool { return false })("tcp", ""); err == nil || !strings.Contains(err.Error(), "localhost") {
		t.Errorf("%v, %v", conn, err)
	}
	if conn, err := n.dialler(net.Dial, func() bool { return true })("tcp", ""); err == nil {
		t.Errorf("dialled after the end: %v", conn)
	}
}

// Decision 21: in the words of a cluster of RabbitMQ 3.10, a classic queue whose node is down is told from a queue that
// is not there.
func TestNodeOfQueueIsDown(t *testing.T) {
	for reason, want := range map[string]bool{
		"NOT_FOUND - home node 'bn3@localhost' of durable queue 'cq-classic' in vhost '/' is down or inaccessible": true,
		"NOT_FOUND - no queue 'cq-classic' in vhost '/'":                                                           false,
	} {
		err := fmt.Errorf("wmamqp: backlog: %w", &amqp091.Error{Code: amqp091.NotFound, Reason: reason, Server: true})
		testkit.Check(t, isNodeDown(err) == want, "%s: %t", reason, !want)
	}
	testkit.Check(t, !isNodeDown(&amqp091.Error{Code: amqp091.AccessRefused, Reason: "down or inaccessible"}) &&
		!isNodeDown(nil), "another refusal is taken for a node that is down")
}

// Decision 21: what wmamqp's publisher says of a nack and of silence holds messages for a while, and what it says of a
// missing queue does not.
func TestWordsOfTheBroker(t *testing.T) {
	for err, want := range map[error]bool{
		nacked("nack"):                true,
		noConfirm(address{}, 0):       true,
		&returnedError{to: address{}}: false,
	} {
		testkit.Check(t, outage.Unavailable(err) == want && outage.Nacked(err) == want,
			"%v: away %t, nacked %t", err, outage.Unavailable(err), outage.Nacked(err))
	}
}

// What a queue does not count, as from RabbitMQ 4.3 on, is not taken from its count.
func TestRequeuedAsTheQueueCounts(t *testing.T) {
	for name, row := range map[string]struct{ counts, want []int }{
		"counted":                {[]int{0, 1, 2, 3}, []int{0, 1, 2, 3}},
		"not counted":            {[]int{0, 0, 0, 0}, []int{0, 0, 0, 0}},
		"crashes in between":     {[]int{0, 1, 4, 5}, []int{0, 1, 2, 3}},
		"crashes, nacks are not": {[]int{0, 0, 2, 2}, []int{0, 0, 1, 1}},
		"begins late":            {[]int{7, 8, 8, 9}, []int{0, 1, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRequeues()
			var got []int
			for i, count := range row.counts {
				d := &amqp091.Delivery{Redelivered: i > 0 || count > 0, Headers: amqp091.Table{deliveryCount: int64(count)}}
				got = append(got, g.times("orders", "m", d))
				g.add("orders", "m", d)
			}
			testkit.Check(t, fmt.Sprint(got) == fmt.Sprint(row.want), "got %v, want %v", got, row.want)
		})
	}
}

// Promise P1: from RabbitMQ 4 on, where a quorum queue drops what was requeued 20 times, the limit is lifted; before,
// where -1 drops messages, and on classic queues it is not mentioned.
func TestDeliveryLimit(t *testing.T) {
	for _, row := range []struct {
		version     string
		given, want amqp091.Table
	}{
		{"4.1.0", nil, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(-1)}},
		{"3.10.8", nil, amqp091.Table{"x-queue-type": "quorum"}},
		{"", nil, amqp091.Table{"x-queue-type": "quorum"}},
		{"4.1.0", amqp091.Table{"x-queue-type": "classic"}, amqp091.Table{"x-queue-type": "classic"}},
	} {
		config := PublisherConfig{}
		config.AMQP.Queue.Arguments = row.given
		server := &amqp091.Connection{Properties: amqp091.Table{"version": row.version}}
		got := (&Publisher{config: config}).queueArguments(server)
		testkit.Check(t, reflect.DeepEqual(got, row.want), "%v on %q: %v", row.given, row.version, got)
	}
}

// Feature R15: from RabbitMQ 4 on a quorum queue without a limit of -1 drops messages out of their order, and is
// refused.
func TestKeyOfLimitedQueue(t *testing.T) {
	quorum := amqp091.Table{"x-queue-type": "quorum"}
	for _, row := range []struct {
		what      string
		keyed     bool
		arguments amqp091.Table
		major     int
		refused   bool
	}{
		{"no limit is set", true, quorum, 4, true},
		{"the limit is lifted", true, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": -1}, 4, false},
		{"a classic queue has none", true, nil, 4, false},
		{"earlier brokers have none", true, quorum, 3, false},
		{"no order is asked for", false, quorum, 4, false},
	} {
		config := SubscriberConfig{}
		if row.keyed {
			config.Key = func(*message.Message) string { return "" }
		}
		err := config.checkLimit(row.arguments, row.major)
		testkit.Check(t, (err != nil) == row.refused, "%s: %v", row.what, err)
	}
}
