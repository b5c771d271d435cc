package console

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature V11: a request whose body does not arrive ends after 20 s, and with its connection, whatever its person may
// do. Who sends it, and what that person may do, is known before the body is read.
func TestSlowBody(t *testing.T) {
	b := newBench(t)
	b.console.timeout = 100 * time.Millisecond
	server := httptest.NewServer(b.console)
	defer server.Close()
	for _, row := range []struct {
		method, path, role string
		status             int
	}{
		{http.MethodPost, "/campaigns/x/pause", "operate", http.StatusRequestTimeout},
		{http.MethodPost, "/redrive", "operate", http.StatusRequestTimeout},
		{http.MethodPost, "/campaigns/x/pause", "look", http.StatusForbidden},
		{http.MethodPost, "/campaigns/x/pause", "none", http.StatusForbidden},
		{http.MethodPost, "/elsewhere", "operate", http.StatusNotFound},
		{http.MethodGet, "/static/" + styleName, "none", http.StatusOK},
	} {
		t.Run(row.method+row.path+row.role, func(t *testing.T) {
			connection, err := net.Dial("tcp", server.Listener.Addr().String())
			testkit.NoError(t, err)
			defer func() { _ = connection.Close() }()
			_, err = fmt.Fprintf(connection, "%s %s HTTP/1.1\r\nHost: localhost\r\nTest-Role: %s\r\nSec-Fetch-Site: same-origin\r\n"+
				"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nrate", row.method, row.path, row.role)
			testkit.NoError(t, err)
			testkit.Within(t, "the connection ends", func() {
				from := bufio.NewReader(connection)
				answer, err := http.ReadResponse(from, nil)
				if err != nil || answer.StatusCode != row.status {
					t.Errorf("%+v, %v", answer, err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if _, err := from.ReadByte(); err == nil {
					t.Error("there is more than one answer")
				}
			})
		})
	}
}

// Feature V11: a body that has arrived has no deadline any more: the request has its own time.
func TestBodyArrived(t *testing.T) {
	b := newBench(t)
	deadlines := &deadlined{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodPost, "/campaigns/x/rate", strings.NewReader("reason=x&rate=1"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	b.console.ServeHTTP(deadlines, r)
	testkit.Check(t, len(deadlines.set) == 2 && !deadlines.set[0].IsZero() && deadlines.set[1].IsZero(),
		"the deadlines are %v", deadlines.set)
}

// deadlined keeps the deadlines that are set.
type deadlined struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlined) SetReadDeadline(at time.Time) error { d.set = append(d.set, at); return nil }
