package classify_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature C4: errors of real connections.
func TestConnections(t *testing.T) {
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))
	address := listener.Addr().String()
	dial := func(network, address string) error { return testkit.Err(net.Dial(network, address)) }
	conn := testkit.Must(net.Dial("tcp", address))
	peer := testkit.Must(listener.Accept())
	read := func() error { return testkit.Err(conn.Read(make([]byte, 1))) }
	_ = conn.SetReadDeadline(time.Now().Add(-time.Second))
	judges(t, transient, read()) // too late
	_ = conn.SetReadDeadline(time.Time{})
	_ = peer.(*net.TCPConn).SetLinger(0) // closes with a reset
	_ = peer.Close()
	judges(t, transient, read())
	_ = conn.Close()
	_ = listener.Close()
	judges(t, transient, read(), testkit.Err(listener.Accept()))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	judges(t, transient, testkit.Err(new(net.Dialer).DialContext(ctx, "tcp", address)))
	judges(t, unavailable, dial("tcp", address))
	judges(t, lasting, dial("tcp", "127.0.0.1:99999"), dial("tcp", "127.0.0.1"), dial("carrier pigeon", address))
	_, _, err := net.ParseCIDR("10.0.0.0/99")
	judges(t, lasting, err)
	resolver := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the resolver is down")
	}}
	judges(t, transient, testkit.Err(resolver.LookupHost(context.Background(), "spillway.invalid.")))
}

// Feature C4: errors of a real HTTP client: the server does not listen, hangs up, is too slow, or the request is
// nonsense.
func TestHTTP(t *testing.T) {
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
	judges(t, transient, get(server.URL), get(server.URL+"/half"))
	client.Timeout = 20 * time.Millisecond
	judges(t, transient, get(server.URL+"/slow"))
	client.Timeout = 10 * time.Second
	close(release)
	server.Close()
	judges(t, unavailable, get(server.URL))
	judges(t, lasting, get("http://127.0.0.1:99999"))
	judges(t, transient, &url.Error{Op: "Get", Err: wrap(io.ErrUnexpectedEOF, 3)})
	judges(t, unknown, get("gopher://127.0.0.1/"), testkit.Err(os.Open(t.TempDir()+"/missing")))
}

// Feature C4: real errors of encoding/json: bad input is the message's fault, misuse is the program's.
func TestJSON(t *testing.T) {
	var into struct{ N int }
	for _, input := range []string{`{"N":`, `}`, ``, `{"N":"one"}`, `[]`, "\x00", `{"N":1e99}`} {
		judges(t, classify.Verdict{Class: classify.ClassInvalid, Reason: classify.ReasonUnmarshal},
			json.Unmarshal([]byte(input), &into), json.NewDecoder(strings.NewReader(`{"N":x}`+input)).Decode(&into))
	}
	for _, target := range []any{into, nil, (*int)(nil)} {
		judges(t, lasting, json.Unmarshal([]byte(`{}`), target))
	}
	for _, value := range []any{make(chan int), math.NaN(), refuses{}} {
		judges(t, lasting, testkit.Err(json.Marshal(value)))
	}
}

type refuses struct{}

func (refuses) MarshalJSON() ([]byte, error) { return nil, errors.New("no") }

func openSQLite(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db := testkit.Must(sql.Open("sqlite", dsn))
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Feature C4: real errors of SQLite: busy, full, constraints, too big, read-only, and those that cannot be judged; and
// those of database/sql itself.
func TestSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.sqlite")
	db, other := openSQLite(t, file), openSQLite(t, file)
	run := func(query string, args ...any) error { return testkit.Err(db.Exec(query, args...)) }
	testkit.NoError(t, run(`CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT NOT NULL CHECK (v <> 'bad'), u TEXT UNIQUE);
INSERT INTO t VALUES (1, 'a', 'a')`))
	for _, values := range []string{
		`1, 'b', 'b'`, `2, 'b', 'a'`, `2, NULL, 'b'`, `2, 'bad', 'b'`, `'no number', 'b', 'b'`,
	} {
		judges(t, lasting, run(`INSERT INTO t VALUES (`+values+`)`))
	}
	judges(t, lasting, run(`SELECT zeroblob(2000000000)`),
		testkit.Err(openSQLite(t, "file:"+file+"?mode=ro").Exec(`DELETE FROM t`)))
	judges(t, unknown, run(`SELECT * FROM nothing`), db.QueryRow(`SELECT 1 WHERE 0`).Scan(new(int)))

	tx := testkit.Must(other.Begin())
	testkit.Must(tx.Exec(`INSERT INTO t VALUES (3, 'c', 'c')`))
	judges(t, transient, run(`INSERT INTO t VALUES (4, 'd', 'd')`)) // busy
	_ = tx.Rollback()
	testkit.NoError(t, run(`PRAGMA max_page_count = 4`))
	conn := testkit.Must(other.Conn(context.Background()))
	_ = conn.Close()
	judges(t, transient, run(`INSERT INTO t VALUES (5, ?, 'e')`, strings.Repeat("x", 1<<20)), // full
		openSQLite(t, "file:"+file+"/none?mode=ro").Ping(), tx.Rollback(), conn.PingContext(context.Background()))
}
