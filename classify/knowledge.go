package classify

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// askKnowledge judges one error, not its causes, by what the standard library and the databases say of it.
func askKnowledge(err error) (Verdict, bool) {
	if v, ok := askAway(err); ok {
		return v, true
	}
	if v, ok := askMessage(err); ok {
		return v, true
	}
	switch e := err.(type) {
	case *PanicError:
		return Verdict{Class: ClassPermanent, Reason: ReasonPanic, Description: e.nilTx()}, true
	case *json.InvalidUnmarshalError, *json.UnsupportedTypeError, *json.UnsupportedValueError, *json.MarshalerError:
		return permanent, true
	case syscall.Errno:
		return askErrno(e)
	case *net.AddrError, *net.ParseError, net.InvalidAddrError, net.UnknownNetworkError:
		return permanent, true
	case *net.OpError, *url.Error: // their causes say more, and their Timeout methods recur where one wraps itself
		return Verdict{}, false
	case *net.DNSError:
		return transient, true
	}
	if err == ErrTooLarge {
		return Verdict{Class: ClassPermanent, TooLarge: true}, true
	}
	for _, sentinel := range transientSentinels {
		if err == sentinel { // one node of the tree is judged here, not its causes
			return transient, true
		}
	}
	if v, ok := askDatabase(err); ok {
		return v, true
	}
	if v, ok := askStatus(err); ok {
		return v, true
	}
	if v, ok := askRetry(err); ok {
		return v, true
	}
	if e, ok := err.(net.Error); ok && e.Timeout() {
		return transient, true
	}
	return Verdict{}, false
}

// askNetwork is asked if no cause gave a class: a wrong address or a refused permission shows inside a net.OpError, and
// what is left is the network's weather. If no connection was made, the server is away. A connection closed early shows
// as a bare EOF, which means that only inside the error of an HTTP client.
func askNetwork(err error) (Verdict, bool) {
	switch e := err.(type) {
	case *net.OpError:
		if e.Op == "dial" && !isCancelled(e.Err) {
			return away, true
		}
		return transient, true
	case *url.Error:
		near := judgement{left: 16} // few, because each link of a long chain may be such an error
		return near.tree(e.Err, askEOF, stopAtFirst)
	}
	if foreign.ErrorOf(err).Kind != foreign.Connect {
		return Verdict{}, false
	}
	near := judgement{left: 16}
	if v, ok := near.tree(errors.Unwrap(err), askNetwork, stopAtFirst); ok {
		return v, true
	}
	return away, true
}

// isCancelled reports whether package net says in its own words that a context was cancelled.
func isCancelled(err error) bool {
	e, ok := err.(interface{ Is(error) bool })
	return ok && e.Is(context.Canceled)
}

func askEOF(err error) (Verdict, bool) { return transient, err == io.EOF || err == io.ErrUnexpectedEOF }

var (
	transient = Verdict{Class: ClassTransient}
	permanent = Verdict{Class: ClassPermanent}
)

// transientSentinels leaves out sql.ErrNoRows on purpose: it is unknown whether the row is on its way. A cancelled
// context is something within the handler that was cancelled; the end of the message's own is ClassAborted.
var transientSentinels = []error{
	context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded, net.ErrClosed,
	sql.ErrConnDone, sql.ErrTxDone, driver.ErrBadConn,
}

var errnos = map[syscall.Errno]Class{
	syscall.ECONNREFUSED: ClassTransient,
	syscall.ECONNRESET:   ClassTransient,
	syscall.ECONNABORTED: ClassTransient,
	syscall.EPIPE:        ClassTransient,
	syscall.ETIMEDOUT:    ClassTransient,
	syscall.EHOSTUNREACH: ClassTransient,
	syscall.EHOSTDOWN:    ClassTransient,
	syscall.ENETUNREACH:  ClassTransient,
	syscall.ENETDOWN:     ClassTransient,
	syscall.ENETRESET:    ClassTransient,
	syscall.ENOTCONN:     ClassTransient,
	syscall.ENOBUFS:      ClassTransient,
	syscall.EAGAIN:       ClassTransient,
	syscall.EINTR:        ClassTransient,
	syscall.EBUSY:        ClassTransient,
	syscall.EMFILE:       ClassTransient,
	syscall.ENFILE:       ClassTransient,
	syscall.ENOMEM:       ClassTransient,
	syscall.ENOSPC:       ClassTransient,
	syscall.EIO:          ClassTransient,
	syscall.EACCES:       ClassPermanent,
	syscall.EPERM:        ClassPermanent,
	syscall.EINVAL:       ClassPermanent,
	syscall.ENAMETOOLONG: ClassPermanent,
	syscall.ENOSYS:       ClassPermanent,
	syscall.ENOTDIR:      ClassPermanent,
	syscall.EISDIR:       ClassPermanent,
	syscall.EAFNOSUPPORT: ClassPermanent,
}

func askErrno(e syscall.Errno) (Verdict, bool) {
	class, ok := errnos[e]
	if !ok && (e.Timeout() || e.Temporary()) {
		class, ok = ClassTransient, true
	}
	return Verdict{Class: class}, ok
}
