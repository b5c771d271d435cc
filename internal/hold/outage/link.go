package outage

import (
	"database/sql/driver"
	"io"
	"net"
	"syscall"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
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
		case foreign.Says(text, foreign.Cut):
			found = cut
		case found != cut && foreign.Says(text, foreign.Lost):
			found = unclear
		}
		return true
	})
	return found
}

func cannotConnect(err error) bool {
	switch e := err.(type) {
	case *net.OpError:
		return e.Op == "dial"
	case *net.DNSError, *hold.Unavailable:
		return true
	}
	if foreign.ErrorOf(err).Kind == foreign.Connect {
		return true
	}
	return foreign.Says(err.Error(), foreign.Unconnected)
}
