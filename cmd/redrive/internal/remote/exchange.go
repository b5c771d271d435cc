package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

const (
	// mostRead bounds an answer, in bytes.
	mostRead = 64 << 20
	// reading and changing are how long one request may take. A server starts a campaign within 50 s.
	reading, changing = 30 * time.Second, 90 * time.Second
	attempts          = 3
)

// pause is the time before another attempt.
var pause = 200 * time.Millisecond

// asking is one request, which may be sent several times.
type asking struct {
	method string
	path   []string
	query  url.Values
	body   []byte
	key    string // under which the server does it once
	item   bool   // the path names one thing, which may not be there
}

// get reads a list, or something that is always there.
func (d *Desk) get(ctx context.Context, out any, query url.Values, path ...string) error {
	return d.json(ctx, asking{method: http.MethodGet, path: path, query: query}, out)
}

// getItem reads one thing.
func (d *Desk) getItem(ctx context.Context, out any, query url.Values, path ...string) error {
	return d.json(ctx, asking{method: http.MethodGet, path: path, query: query, item: true}, out)
}

// post sends what a person does, under a key. Without a key it changes nothing.
func (d *Desk) post(ctx context.Context, out any, key string, body any, path ...string) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return d.json(ctx, asking{method: http.MethodPost, path: path, body: text, key: key, item: len(path) > 1}, out)
}

// json decodes an answer. What this command does not know is passed over: the server may be newer.
func (d *Desk) json(ctx context.Context, a asking, out any) error {
	kind, body, err := d.ask(ctx, a)
	if err != nil {
		return err
	}
	if kind != "application/json" {
		return d.noAPI(kind)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the API at %s gave an answer that redrive %s cannot read: %w", d.at.Host, d.config.Command,
			err)
	}
	return nil
}

// ask sends a request until there is an answer. It is sent again only if the server does it once anyway.
func (d *Desk) ask(ctx context.Context, a asking) (kind string, body []byte, err error) {
	for n := 1; ; n++ {
		kind, body, err = d.once(ctx, a)
		if err == nil || n == attempts || ctx.Err() != nil || Lasting(err) {
			return kind, body, err
		}
		select {
		case <-ctx.Done():
			return "", nil, ctx.Err()
		case <-time.After(pause << (2 * (n - 1))):
		}
	}
}

func (d *Desk) once(ctx context.Context, a asking) (kind string, body []byte, err error) {
	token, err := readToken(d.config.TokenFile)
	if err != nil {
		return "", nil, err
	}
	limit := reading
	if a.method == http.MethodPost {
		limit = changing
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	at := d.at.JoinPath(append([]string{"api", "v1"}, escaped(a.path)...)...)
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
	header.Set("User-Agent", "redrive/"+d.config.Command)
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	if a.method == http.MethodPost {
		header.Set("Content-Type", "application/json")
	}
	if a.key != "" {
		header.Set("Idempotency-Key", a.key)
	}
	response, err := d.http.Do(request)
	if err != nil {
		return "", nil, d.noAnswer(ctx, err, limit)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, mostRead+1))
	switch {
	case err != nil:
		return "", nil, d.noAnswer(ctx, err, limit)
	case len(body) > mostRead:
		return "", nil, lasting{fmt.Errorf("the API at %s gave an answer of more than %d MiB: choose less", d.at.Host,
			mostRead>>20)}
	}
	kind, _, _ = mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return kind, body, nil
	}
	return "", nil, d.refusal(response, a, token != "", kind, body)
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
func (d *Desk) noAnswer(ctx context.Context, err error, limit time.Duration) error {
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
	said := fmt.Errorf("the API at %s does not answer: %w", d.at.Host, err)
	switch {
	case errors.Is(err, errElsewhere):
		return lasting{fmt.Errorf("the API at %s: %w", d.at.Host, err)}
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return lasting{fmt.Errorf("%w: if the server has a certificate of your own, name what vouches for it with --ca",
			said)}
	}
	return said
}

// newKey is a key for one thing that a person does.
func newKey() string { return watermill.NewUUID() }
