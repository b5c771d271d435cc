package wmamqp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// nodes are those of a URI with several hosts, as in amqp://user:password@a:5672,b:5672/. The client knows one host, so
// its dialler goes from node to node, and makes the TLS connection, which has the name of the node.
type nodes struct {
	all     []node
	dialled atomic.Uint64 // in all
	tls     *tls.Config   // nil without TLS
}

type node struct{ address, host string }

// nodesOf returns the nodes of a URI, and a URI with the first of them alone, for the client. With TLS, that URI has
// none. It returns nil for a URI with one host, which the client reads.
func nodesOf(uri string, secure *tls.Config) (*nodes, string, error) {
	before, hosts, after := cutHosts(uri)
	names := strings.Split(hosts, ",")
	if len(names) == 1 {
		return nil, uri, nil
	}
	n := &nodes{tls: secure}
	for _, name := range names {
		if name == "" {
			return nil, "", errors.New("wmamqp: the AMQP URI has an empty host between its commas: leave it out")
		}
		one, err := parseURI(before + name + after)
		if err != nil {
			return nil, "", err
		}
		n.all = append(n.all, node{net.JoinHostPort(one.Host, strconv.Itoa(one.Port)), one.Host})
		if one.Scheme == "amqps" && n.tls == nil {
			if n.tls, err = tlsOf(one); err != nil {
				return nil, "", err
			}
		}
	}
	scheme, rest, _ := strings.Cut(before, "://")
	if scheme == "amqps" {
		scheme = "amqp"
	} else {
		n.tls = nil
	}
	return n, scheme + "://" + rest + n.all[0].address + after, nil
}

// parseURI returns errors without the URI, which has the password.
func parseURI(uri string) (amqp091.URI, error) {
	parsed, err := amqp091.ParseURI(uri)
	if whole := (*url.Error)(nil); errors.As(err, &whole) {
		err = whole.Err
	}
	if err != nil {
		return parsed, fmt.Errorf("wmamqp: the AMQP URI: %w; give amqp://user:password@host:port/, or several as host:port,host:port",
			err)
	}
	return parsed, nil
}

// cutHosts finds the hosts of a URI: between the user, whose password may have commas, and the path.
func cutHosts(uri string) (before, hosts, after string) {
	scheme, _, found := strings.Cut(uri, "://")
	if !found {
		return uri, "", ""
	}
	begin, end := len(scheme)+len("://"), len(uri)
	if at := strings.IndexAny(uri[begin:], "/?#"); at >= 0 {
		end = begin + at
	}
	begin += strings.LastIndex(uri[begin:end], "@") + 1
	return uri[:begin], uri[begin:end], uri[end:]
}

// tlsOf is what the client makes of the URI's parameters cacertfile, certfile, keyfile and server_name_indication.
func tlsOf(uri amqp091.URI) (*tls.Config, error) {
	config := &tls.Config{ServerName: uri.ServerName}
	if uri.CACertFile != "" {
		authorities, err := os.ReadFile(uri.CACertFile)
		if err != nil {
			return nil, fmt.Errorf("wmamqp: the AMQP URI: cacertfile: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(authorities)
	}
	if uri.CertFile != "" && uri.KeyFile != "" {
		own, err := tls.LoadX509KeyPair(uri.CertFile, uri.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("wmamqp: the AMQP URI: certfile and keyfile: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// handshakeTimeout is how long a node may take to make a TLS connection.
const handshakeTimeout = 10 * time.Second

// dialler returns a dialler that begins with the node behind the one that was dialled last, and ends with that one. It
// ends when refuses says so.
func (n *nodes) dialler(dial func(network, address string) (net.Conn, error),
	refuses func() bool) func(network, address string) (net.Conn, error) {
	return func(network, _ string) (net.Conn, error) {
		var errs []error
		for range n.all {
			if refuses() {
				return nil, net.ErrClosed
			}
			next := n.all[(n.dialled.Add(1)-1)%uint64(len(n.all))]
			conn, err := dial(network, next.address)
			if err == nil {
				conn, err = n.secure(conn, next)
			}
			if err == nil {
				return conn, nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", next.address, err))
		}
		return nil, errors.Join(errs...)
	}
}

func (n *nodes) secure(conn net.Conn, to node) (net.Conn, error) {
	if n.tls == nil {
		return conn, nil
	}
	config := n.tls.Clone()
	if config.ServerName == "" {
		config.ServerName = to.host
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}
