package classify_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature C4: errors of real connections.
func TestKnowledgeNet(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	address := listener.Addr().String()
	conn, err := net.Dial("tcp", address)
	testkit.NoError(t, err)
	peer, err := listener.Accept()
	testkit.NoError(t, err)
	read := func() error { _, err := conn.Read(make([]byte, 1)); return err }
	_ = conn.SetReadDeadline(time.Now().Add(-time.Second))
	check(t, "read deadline", read(), classify.ClassTransient)
	_ = conn.SetReadDeadline(time.Time{})
	_ = peer.(*net.TCPConn).SetLinger(0) // closes with a reset
	_ = peer.Close()
	check(t, "reset", read(), classify.ClassTransient)
	_ = conn.Close()
	check(t, "closed", read(), classify.ClassTransient)
	_ = listener.Close()
	_, err = listener.Accept()
	check(t, "listener closed", err, classify.ClassTransient)

	dial := func(address string) error { _, err := net.Dial("tcp", address); return err }
	check(t, "refused", dial(address), classify.ClassTransient)
	check(t, "no such port", dial("127.0.0.1:99999"), classify.ClassPermanent)
	check(t, "no port", dial("127.0.0.1"), classify.ClassPermanent)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = new(net.Dialer).DialContext(ctx, "tcp", address)
	check(t, "cancelled", err, classify.ClassTransient)
	_, err = net.Dial("carrier pigeon", address)
	check(t, "no such network", err, classify.ClassPermanent)
	_, _, err = net.ParseCIDR("10.0.0.0/99")
	check(t, "bad CIDR", err, classify.ClassPermanent)

	resolver := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the resolver is down")
	}}
	_, err = resolver.LookupHost(context.Background(), "spillway.invalid.")
	check(t, "name server", err, classify.ClassTransient)
	check(t, "permission", &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)}, classify.ClassPermanent)
	check(t, "weather", &net.OpError{Op: "read", Err: errors.New("no such luck")}, classify.ClassTransient)
}

// Feature C4: errors of a real HTTP client: the server does not listen, hangs up, is too slow, or the request is
// nonsense.
func TestKnowledgeHTTP(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		if r.URL.Path == "/half" {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n")
		}
		_ = conn.Close()
	}))
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(url string) error {
		response, err := client.Get(url)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	check(t, "hangs up", get(server.URL), classify.ClassTransient)
	check(t, "hangs up half way", get(server.URL+"/half"), classify.ClassTransient)
	client.Timeout = 20 * time.Millisecond
	check(t, "slow", get(server.URL+"/slow"), classify.ClassTransient)
	client.Timeout = 10 * time.Second
	close(release)
	server.Close()
	check(t, "gone", get(server.URL), classify.ClassTransient)
	check(t, "no such port", get("http://127.0.0.1:99999"), classify.ClassPermanent)
	check(t, "EOF inside", &url.Error{Op: "Get", Err: wrap(io.ErrUnexpectedEOF, 3)}, classify.ClassTransient)
	check(t, "bare EOF", io.EOF, classify.ClassUnknown) // of a file it is no weather
	check(t, "no such scheme", get("gopher://127.0.0.1/"), classify.ClassUnknown)
}
