package faultproxy_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a proxy in front of a server that says back what it reads.
func start(t *testing.T) *faultproxy.Proxy {
	t.Helper()
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	p := testkit.Must(faultproxy.New(listener.Addr().String()))
	t.Cleanup(func() {
		p.Close()
		_ = listener.Close()
		all.Wait()
	})
	return p
}

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	conn := testkit.Must(net.Dial("tcp", p.Addr()))
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testkit.Patience))
	return conn
}

// echo says a word and reads it again.
func echo(conn net.Conn, word string) error {
	if _, err := io.WriteString(conn, word); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len(word)))
	return err
}

func works(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	conn := dial(t, p)
	testkit.NoError(t, echo(conn, "hello"))
	return conn
}

func TestCut(t *testing.T) {
	p := start(t)
	conn := works(t, p)
	p.Cut()
	if err := echo(conn, "lost"); err == nil {
		t.Error("the connection lives")
	}
	for range 2 {
		conn, err := net.Dial("tcp", p.Addr())
		testkit.Check(t, err != nil || echo(conn, "lost") != nil, "a new connection works")
	}
	n := p.Accepted()
	testkit.Check(t, n <= 2, "%d connections", n)
	p.Heal()
	works(t, p)
}

// What is said meanwhile is lost, and so the connection is closed in the end; new ones work.
func TestSilence(t *testing.T) {
	for name, fault := range map[string]func(*faultproxy.Proxy){"half-open": (*faultproxy.Proxy).HalfOpen, "stalled": (*faultproxy.Proxy).Stall} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			old := works(t, p)
			fault(p)
			for _, conn := range []net.Conn{old, dial(t, p)} {
				if _, err := io.WriteString(conn, "silence"); err != nil {
					t.Error(err)
				}
				_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				if n, err := conn.Read(make([]byte, 1)); n > 0 || err == io.EOF {
					t.Errorf("%d bytes, %v", n, err)
				}
				_ = conn.SetReadDeadline(time.Now().Add(testkit.Patience))
			}
			p.Heal()
			if n, err := old.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Error("the connection lives, and has lost data")
			}
			works(t, p)
		})
	}
}

func TestWatch(t *testing.T) {
	verdict := func(on string, v faultproxy.Verdict) func([]byte) faultproxy.Verdict {
		return func(data []byte) faultproxy.Verdict {
			if bytes.Contains(data, []byte(on)) {
				return v
			}
			return faultproxy.Pass
		}
	}
	p := start(t)
	one, two := works(t, p), works(t, p)
	p.Watch(verdict("commit", faultproxy.Close), verdict("answer", faultproxy.Hold))
	if err := echo(one, "other"); err != nil {
		t.Error(err)
	}
	if err := echo(one, "commit"); err == nil {
		t.Error("it is not closed")
	}
	if _, err := io.WriteString(two, "answer"); err != nil {
		t.Error(err)
	}
	p.Heal()
	if n, err := two.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("what was held came")
	}
	works(t, p)
}
