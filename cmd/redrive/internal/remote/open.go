package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
)

// Config says where the API is. Command is the version of the command, for errors.
type Config struct {
	URL, TokenFile, CA, Command string
}

// Desk is a desk over an API. Service says whose letters they are, and what the person may do.
type Desk struct {
	Service operate.ServiceData

	config Config
	at     *url.URL
	http   *http.Client
}

// Open opens the API, and asks who answers.
func Open(ctx context.Context, c Config) (*Desk, error) {
	at, err := Address(c.URL)
	if err != nil {
		return nil, wrongConfig{err}
	}
	roots, err := rootsOf(c.CA)
	if err != nil {
		return nil, err
	}
	d := &Desk{config: c, at: at, http: &http.Client{CheckRedirect: stay, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
		MaxConnsPerHost: 2,
	}}}
	if err := d.get(ctx, &d.Service, nil); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// Close ends the connections.
func (d *Desk) Close() error {
	d.http.CloseIdleConnections()
	return nil
}

// At is where the API is, for people.
func (d *Desk) At() string { return d.at.Host }

// rootsOf are the certificates that vouch for the server: those of a file, or the system's.
func rootsOf(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, configError("--ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, configError("--ca is %s, which has no certificate: it must be PEM", path)
	}
	return pool, nil
}

// errElsewhere is the error of a redirect that would take the token, or what a person does, to another place.
var errElsewhere = errors.New("it sends this request elsewhere, which is not followed: give the address where it leads as " +
	"--url, if you trust that")

// stay follows a redirect within the server, and of a question alone.
func stay(next *http.Request, before []*http.Request) error {
	first := before[0]
	if next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host || first.Method != http.MethodGet ||
		len(before) > 3 {
		return errElsewhere
	}
	return nil
}
