package claims

import (
	"net"
	"testing"

	"github.com/lib/pq"

	"github.com/watermill-spillway/spillway/internal/testing/facts"
)

// lib/pq gives its connection only for a server, so the test is one: it lets everyone in, and is ready.
func TestFactPQ(t *testing.T) {
	facts := facts.Of(&pqConn)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = conn.Write([]byte{'R', 0, 0, 0, 8, 0, 0, 0, 0, 'Z', 0, 0, 0, 5, 'I'})
		}
	}()
	connector, err := pq.NewConnector("postgres://" + listener.Addr().String() + "/x?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := connector.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	facts.Met(t, conn, isPQ(conn))
	facts.Check(t)
}
