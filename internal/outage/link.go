package outage

import (
	"database/sql/driver"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/watermill-spillway/spillway/internal/foreign"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// link is what an error says of the connection.
type link int

const (
	disconnected link = iota // there is none, or the server itself says that it is out of order
	cut                      // there was one, and it was lost under the request
	unclear                  // it is lost, and the error does not say when
)

// linkOf reports what an error that is Away says of the connection. A failure to connect counts before what caused it:
// a proxy cuts what it cannot pass on.
func linkOf(err error) link {
	found := disconnected
	_ = safecall.Call("an error", func() error { // whose method can panic
		found = readLink(err)
		return nil
	})
	return found
}

func readLink(err error) link {
	found := disconnected
	walk(err, func(err error) bool {
		switch err {
		case io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED:
			found = cut
			return true
		case driver.ErrBadConn, net.ErrClosed, io.ErrClosedPipe:
			if found != cut {
				found = unclear
			}
			return true
		}
		if cannotConnect(err) {
			found = disconnected
			return false
		}
		switch text := err.Error(); {
		case text == "invalid connection", strings.HasPrefix(text, "Exception (501)"): // MySQL's and AMQP's
			found = cut
		case found != cut && (strings.HasSuffix(text, "kafka: broker not connected") ||
			strings.HasPrefix(text, "Exception (504)") || text == "conn closed"):
			found = unclear
		}
		return true
	})
	return found
}

// noConnection are texts of errors that follow from a connection that could not be made.
var noConnection = []string{"kafka: client has run out of available brokers", "circuit breaker is open",
	"not connected to AMQP"}

func cannotConnect(err error) bool {
	switch e := err.(type) {
	case *net.OpError:
		return e.Op == "dial"
	case *net.DNSError, *unavailable:
		return true
	}
	if foreign.ErrorOf(err).Kind == foreign.Connect {
		return true
	}
	text := err.Error()
	for _, known := range noConnection {
		if strings.Contains(text, known) {
			return true
		}
	}
	return false
}
