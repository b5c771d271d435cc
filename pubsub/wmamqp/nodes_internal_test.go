package wmamqp

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

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
