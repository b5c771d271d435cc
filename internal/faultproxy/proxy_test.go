package faultproxy_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/faultproxy"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start returns a proxy in front of a server that says back what it reads.
func start(t *testing.T) *faultproxy.Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	p, err := faultproxy.New(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		_ = listener.Close()
		all.Wait()
	})
	return p
}

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
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
	if err := echo(conn, "hello"); err != nil {
		t.Fatal(err)
	}
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
		if conn, err := net.Dial("tcp", p.Addr()); err == nil && echo(conn, "lost") == nil {
			t.Error("a new connection works")
		}
	}
	if n := p.Accepted(); n > 2 {
		t.Errorf("%d connections", n)
	}
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

// A peer that stops reading blocks who writes much.
func TestStallBlocks(t *testing.T) {
	p := start(t)
	conn := works(t, p)
	p.Stall()
	_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := conn.Write(make([]byte, 64<<20)); err == nil {
		t.Error("all is written")
	}
}

func TestSlow(t *testing.T) {
	p := start(t)
	conn := works(t, p)
	p.Slow(100*time.Millisecond, 10*time.Millisecond)
	begun := time.Now()
	if err := echo(conn, "slow"); err != nil || time.Since(begun) < 90*time.Millisecond {
		t.Errorf("%v after %s", err, time.Since(begun))
	}
	p.Heal()
	if err := echo(conn, "fast"); err != nil {
		t.Error("a slow connection has lost nothing, and is closed: ", err)
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

// All that was said before the end arrives.
func TestEnd(t *testing.T) {
	p := start(t)
	conn := dial(t, p)
	sent := bytes.Repeat([]byte("0123456789"), 100_000)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		t.Error(err)
	}
}

func TestNoServer(t *testing.T) {
	p, err := faultproxy.New("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if conn, err := net.Dial("tcp", p.Addr()); err == nil {
		if err := echo(conn, "hello"); err == nil {
			t.Error("a server that is not there answers")
		}
		_ = conn.Close()
	}
}
