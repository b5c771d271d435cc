package idempotency_test

import (
	"bytes"
	"context"
	"database/sql"
	"net"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// slowDialer gives connections on which a statement that enters a key leaves late.
type slowDialer struct{ by time.Duration }

func (d slowDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return slowConn{conn, d.by}, err
}

func (d slowDialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	return slowConn{conn, d.by}, err
}

type slowConn struct {
	net.Conn
	by time.Duration
}

func (c slowConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("BEGIN")) {
		time.Sleep(c.by)
	}
	return c.Conn.Write(b)
}

// Promise P4: the wait for another's key ends with the context when the driver's request to cancel overtakes the
// statement, as lib/pq's can: PostgreSQL drops a request that finds nothing to cancel.
func TestPostgresWaitEndsWhenTheCancelIsLost(t *testing.T) {
	connector := testkit.Must(pq.NewConnector(postgrestest.Schema(t)))
	connector.Dialer(slowDialer{by: 300 * time.Millisecond})
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	store := storeOn(db)
	entry := idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "1"}}
	held := testkit.Must(store.Claim(t.Context(), entry))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := store.Claim(ctx, entry)
		ended <- err
	}()
	var err error
	select {
	case err = <-ended:
	case <-time.After(deadline):
		t.Error("the claim waits on when its context has ended")
		_ = held.Release()
		err = <-ended
	}
	testkit.Is(t, err, context.DeadlineExceeded)
	testkit.Equal(t, "connections are in use", db.Stats().InUse, 1)
	testkit.NoError(t, held.Commit(nil))
}
