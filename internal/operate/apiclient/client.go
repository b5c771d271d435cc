// Package apiclient is what those have in common who speak to a console over its API: where it is, and with what token.
package apiclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/operate"
)

const (
	// reading and changing are how long one request may take. A server starts a campaign within 50 s.
	reading, changing = 30 * time.Second, 90 * time.Second
	attempts          = 3
)

// pause is the time before another attempt.
var pause = 200 * time.Millisecond

// Config says where the API is.
type Config struct {
	URL, TokenFile string
	// CA is a file with the certificates that vouch for the server. Default: those of the system.
	CA string
	// Names are what errors call the settings.
	Names Names
	// Program is its name and its release, for servers and errors.
	Program string
	// MostRead bounds an answer, in bytes.
	MostRead int64
	// Brief asks once, follows no redirect and keeps no connection: for a page that asks many servers.
	Brief bool
}

// Client asks the API of a console. It is safe for concurrent use.
type Client struct {
	config Config
	at     *url.URL
	http   *http.Client
	server string // its version of the API, when it is known
	here   bool   // in this process
}

// New returns a Client, and asks nothing yet.
func New(config Config) (*Client, error) {
	at, err := config.Names.Address(config.URL)
	if err == nil {
		_, err = config.Names.Token(config.TokenFile)
	}
	if err != nil {
		return nil, wrongConfig{err}
	}
	roots, err := rootsOf(config.CA)
	if err != nil {
		return nil, err
	}
	redirect := stay
	if config.Brief {
		redirect = func(*http.Request, []*http.Request) error { return errElsewhere }
	}
	return &Client{config: config, at: at, http: &http.Client{CheckRedirect: redirect, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: !config.Brief,
		MaxConnsPerHost: 2, DisableKeepAlives: config.Brief,
	}}}, nil
}

// Open asks who answers, and what the person may do.
func (c *Client) Open(ctx context.Context) (s operate.ServiceData, err error) {
	err = c.Get(ctx, &s, nil)
	c.server = s.API
	return s, err
}

// Close ends the connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// At is where the API is, for people.
func (c *Client) At() string { return c.at.Host }

// Home is the address of the console.
func (c *Client) Home() string { return c.at.String() + "/" }

// errElsewhere is the error of a redirect that would take the token, or what a person does, to another place.
var errElsewhere = errors.New("it sends this request elsewhere, which is not followed")

// stay follows a redirect within the server, and of a question alone.
func stay(next *http.Request, before []*http.Request) error {
	first := before[0]
	if next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host || first.Method != http.MethodGet ||
		len(before) > 3 {
		return errElsewhere
	}
	return nil
}

// asking is one request, which may be sent several times.
type asking struct {
	method string
	path   []string
	query  url.Values
	body   []byte
	key    string // under which the server does it once
	item   bool   // the path names one thing, which may not be there
}

// Get reads a list, or something that is always there.
func (c *Client) Get(ctx context.Context, out any, query url.Values, path ...string) error {
	return c.json(ctx, asking{method: http.MethodGet, path: path, query: query}, out)
}

// GetItem reads one thing, which may not be there.
func (c *Client) GetItem(ctx context.Context, out any, query url.Values, path ...string) error {
	return c.json(ctx, asking{method: http.MethodGet, path: path, query: query, item: true}, out)
}

// PostBytes sends what a person does, under a key, and returns the bytes that it is answered with.
func (c *Client) PostBytes(ctx context.Context, key string, body any, path ...string) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	kind, exact, err := c.ask(ctx, asking{method: http.MethodPost, path: path, body: text, key: key, item: true})
	if err == nil && kind != "application/octet-stream" {
		err = c.noAPI(kind)
	}
	return exact, err
}

// Post sends what a person does, under a key. Without a key it changes nothing.
func (c *Client) Post(ctx context.Context, out any, key string, body any, path ...string) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.json(ctx, asking{method: http.MethodPost, path: path, body: text, key: key, item: len(path) > 1}, out)
}

// json decodes an answer. What this command does not know is passed over: the server may be newer.
func (c *Client) json(ctx context.Context, a asking, out any) error {
	kind, body, err := c.ask(ctx, a)
	if err != nil {
		return err
	}
	if kind != "application/json" {
		return c.noAPI(kind)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the API at %s gave an answer that %s cannot read: %w", c.at.Host, c.config.Program,
			err)
	}
	return nil
}

// ask sends a request until there is an answer. It is sent again only if the server does it once anyway.
func (c *Client) ask(ctx context.Context, a asking) (kind string, body []byte, err error) {
	for n := 1; ; n++ {
		kind, body, err = c.once(ctx, a)
		if err == nil || n == attempts || c.config.Brief || ctx.Err() != nil || Lasting(err) {
			return kind, body, err
		}
		select {
		case <-ctx.Done():
			return "", nil, ctx.Err()
		case <-time.After(pause << (2 * (n - 1))):
		}
	}
}

func (c *Client) once(ctx context.Context, a asking) (kind string, body []byte, err error) {
	token, err := c.config.Names.Token(c.config.TokenFile)
	if err != nil {
		return "", nil, wrongConfig{err}
	}
	limit := reading
	if a.method == http.MethodPost {
		limit = changing
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	if c.here {
		timed, cancel = context.WithCancel(operate.Telling(ctx))
	}
	defer cancel()
	at := c.at.JoinPath(append([]string{"api", "v1"}, escaped(a.path)...)...)
	if len(a.path) == 0 {
		at.Path += "/"
	}
	at.RawQuery = a.query.Encode()
	request, err := http.NewRequestWithContext(timed, a.method, at.String(), bytes.NewReader(a.body))
	if err != nil {
		return "", nil, err
	}
	header := request.Header
	header.Set("Accept", "application/json, application/problem+json, application/octet-stream")
	header.Set("User-Agent", strings.Replace(c.config.Program, " ", "/", 1))
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	if a.method == http.MethodPost {
		header.Set("Content-Type", "application/json")
	}
	if a.key != "" {
		header.Set("Idempotency-Key", a.key)
	}
	response, err := c.http.Do(request)
	if err != nil && c.here {
		return "", nil, cmp.Or(ctx.Err(), err)
	}
	if err != nil {
		return "", nil, c.noAnswer(ctx, err, limit)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, c.config.MostRead+1))
	switch {
	case err != nil:
		return "", nil, c.noAnswer(ctx, err, limit)
	case int64(len(body)) > c.config.MostRead:
		return "", nil, lasting{fmt.Errorf("the API at %s gave an answer of more than %d MiB: choose less", c.at.Host,
			c.config.MostRead>>20)}
	}
	kind, _, _ = mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return kind, body, nil
	}
	err = c.refusal(response, a, token != "", kind, body)
	if c.here {
		err = asItWas(timed, err)
	}
	return "", nil, err
}

// escaped are parts of a path that are one part each.
func escaped(parts []string) []string {
	all := make([]string, len(parts))
	for i, part := range parts {
		all[i] = url.PathEscape(part)
		if strings.Trim(part, ".") == "" { // a path would go up by it
			all[i] = strings.ReplaceAll(part, ".", "%2E")
		}
	}
	return all
}

// noAnswer is the error of a request that got none. The address in the error of net/http has what was looked for.
func (c *Client) noAnswer(ctx context.Context, err error, limit time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var of *url.Error
	for errors.As(err, &of) {
		err = of.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s", limit)
	}
	said := fmt.Errorf("the API at %s does not answer: %w", c.at.Host, err)
	switch {
	case errors.Is(err, errElsewhere):
		return lasting{fmt.Errorf("the API at %s: %w: give the address where it leads as %s, if you trust that", c.at.Host, err,
			c.config.Names.URL)}
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return lasting{fmt.Errorf("%w: if the server has a certificate of your own, name what vouches for it with --ca",
			said)}
	}
	return said
}

// NewKey is a key for one thing that a person does.
func NewKey() string { return watermill.NewUUID() }

// Here returns a Client of an API in the same process. Its errors are those of the API, as they are.
func Here(api http.Handler, program string) *Client {
	return &Client{config: Config{Program: program, MostRead: math.MaxInt64 - 1, Brief: true}, here: true,
		at: &url.URL{Scheme: "http", Host: "localhost"}, http: &http.Client{Transport: inProcess{api}}}
}

// inProcess calls a handler.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &recorded{header: http.Header{}}
	p.handler.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil && w.status == 0 {
		return nil, err // there was no answer
	}
	return &http.Response{StatusCode: max(w.status, http.StatusOK), Header: w.header, Request: r,
		Body: io.NopCloser(&w.body)}, nil
}

// recorded is an answer.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorded) Header() http.Header { return w.header }

func (w *recorded) Write(some []byte) (int, error) {
	w.status = max(w.status, http.StatusOK)
	return w.body.Write(some)
}

func (w *recorded) WriteHeader(status int) { w.status = max(w.status, status) }

// asItWas returns the error of the API for a refusal, if it says more than the refusal does.
func asItWas(ctx context.Context, refusal error) error {
	err := operate.Notified(ctx)
	if err == nil || errors.As(err, new(*operate.Problem)) || errors.As(err, new(*operate.Wrong)) ||
		errors.As(err, new(*operate.Forbidden)) {
		return refusal
	}
	return err
}
