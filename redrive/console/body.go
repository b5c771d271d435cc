package console

import (
	"net/http"
	"time"
)

// awaitBody gives the body of a request the time of a request to arrive: a client that sends it byte by byte would
// hold its connection for ever, also if nothing reads the body, because a server reads what is left of it before it
// answers. The time of the server itself stays, if it is shorter. The returned function is called when all of the body
// was read: what happens to the connection from then on does not end the request.
func (c *console) awaitBody(w http.ResponseWriter, hr *http.Request) (arrived func()) {
	if hr.Body == nil || hr.Body == http.NoBody {
		return func() {}
	}
	timeout := c.timeout
	if server, ok := hr.Context().Value(http.ServerContextKey).(*http.Server); ok && server.ReadTimeout > 0 {
		timeout = min(timeout, server.ReadTimeout)
	}
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(timeout)) // a writer that cannot has no connection of its own
	return func() { _ = connection.SetReadDeadline(time.Time{}) }
}
