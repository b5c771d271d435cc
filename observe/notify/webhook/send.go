package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/observe/notify"
)

const (
	maxAnswer    = 4 << 10 // bytes that are read of an answer
	maxRedirects = 3
	maxTime      = 10 * time.Second // of a request with its answer; what hangs for longer is tried again
)

// New returns a Sink that sends each notice to Config.URL.
func New(config Config) (notify.Sink, error) {
	config.setDefaults()
	to, err := config.validate()
	if err != nil {
		return nil, err
	}
	client := *config.Client // the caller may use its own again
	client.CheckRedirect = checkRedirect
	h := &hook{config: config, client: &client, hidden: parts(config.URL, to)}
	return h.send, nil
}

// hook sends requests.
type hook struct {
	config Config
	client *http.Client
	hidden []string // the URL, and parts of it
}

func (h *hook) send(ctx context.Context, n notify.Notice) error {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	body, err := h.config.Body(n)
	if err != nil {
		return classify.Permanent(fmt.Errorf("webhook: make the body: %w", err))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.config.URL, bytes.NewReader(body))
	if err != nil {
		return classify.Permanent(errors.New("webhook: make the request: the address or the method is not accepted"))
	}
	for name, values := range h.config.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("User-Agent", "spillway-notify")
	request.Header.Set(HeaderID, n.ID)
	if len(h.config.Secret) > 0 {
		sign(request.Header, h.config.Secret, n.ID, time.Now(), body)
	}
	answer, err := h.client.Do(request)
	if err != nil {
		return h.failed(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // what it says is for people only
	return h.judge(answer, string(text))
}

// failed is the error of a request without an answer.
func (h *hook) failed(ctx context.Context, err error) error {
	var redirect *redirectError
	if errors.As(err, &redirect) {
		return classify.Permanent(errors.New("webhook: " + redirect.why))
	}
	if ctx.Err() != nil {
		return classify.Transient(fmt.Errorf("webhook: no answer within %s: %w", maxTime, ctx.Err()))
	}
	var about *url.Error
	if errors.As(err, &about) { // its text has the address
		err = about.Err
	}
	return classify.Transient(errors.New("webhook: " + h.clean(err.Error())))
}

// judge says what an answer means.
func (h *hook) judge(answer *http.Response, text string) error {
	code := answer.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	err := fmt.Errorf("webhook: the answer is %d %s", code, http.StatusText(code))
	if text = h.clean(strings.TrimSpace(text)); text != "" {
		err = fmt.Errorf("%w: %q", err, text)
	}
	switch {
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return classify.Transient(err, classify.RetryAfterHeader(answer.Header.Get("Retry-After")))
	case code >= 300 && code < 400:
		return classify.Permanent(errors.New("webhook: the answer is a redirect that changes the method or has no place: " +
			"set Config.URL to the new address"))
	}
	return classify.Permanent(err)
}

// clean bounds a text, and hides the address in it.
func (h *hook) clean(text string) string {
	text = boundedtext.Text(text, maxAnswer)
	for _, part := range h.hidden {
		text = strings.ReplaceAll(text, part, "[hidden]")
	}
	return boundedtext.Text(text, 200)
}

// parts are what must not be shown of an address, the longest first.
func parts(whole string, u *url.URL) (hidden []string) {
	for _, part := range []string{whole, u.String(), u.RequestURI(), u.EscapedPath(), u.Path, u.RawQuery,
		u.User.String(),
		u.Host, u.Hostname()} {
		if len(part) > 1 {
			hidden = append(hidden, part)
		}
	}
	for _, part := range strings.FieldsFunc(u.Path+"/"+u.RawQuery, func(r rune) bool {
		return strings.ContainsRune("/&=", r)
	}) {
		if len(part) >= 6 {
			hidden = append(hidden, part)
		}
	}
	return hidden
}

type redirectError struct{ why string }

func (e *redirectError) Error() string { return e.why }

// checkRedirect follows within the host and with the body alone: another host would learn the notice and its signature,
// and a GET says nothing.
func checkRedirect(request *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case request.URL.Host != first.URL.Host || request.URL.Scheme != first.URL.Scheme:
		return &redirectError{"the answer is a redirect to another host, which is not followed: set Config.URL to the new address"}
	case request.Method != http.MethodPost:
		return http.ErrUseLastResponse
	case len(via) > maxRedirects:
		return &redirectError{fmt.Sprintf("the answers are more than %d redirects", maxRedirects)}
	}
	return nil
}

// The headers of a signed request, as the Standard Webhooks specification names them.
const (
	// HeaderID has Notice.ID.
	HeaderID = "Webhook-Id"
	// HeaderTimestamp has the time of the request, in seconds since 1970.
	HeaderTimestamp = "Webhook-Timestamp"
	// HeaderSignature has "v1," and the base64 of the HMAC-SHA256 of "<id>.<timestamp>.<body>".
	HeaderSignature = "Webhook-Signature"
)

const version = "v1,"

// DefaultTolerance is how far the time of a request may be from that of the receiver, for Verify.
const DefaultTolerance = 5 * time.Minute

var (
	// ErrSignature is the error of a request that was not signed with the secret, or was changed.
	ErrSignature = errors.New("webhook: the request has no signature of this secret")
	// ErrTimestamp is the error of a request that is too old, or from the future: it may be a copy that is sent again.
	ErrTimestamp = errors.New("webhook: the time of the request is too far from now")
)

// sign adds the headers of a signed request.
func sign(header http.Header, secret []byte, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	header.Set(HeaderID, id)
	header.Set(HeaderTimestamp, timestamp)
	header.Set(HeaderSignature, version+base64.StdEncoding.EncodeToString(mac(secret, id, timestamp, body)))
}

func mac(secret []byte, id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// Verify returns nil if a request was signed with secret and is at most tolerance old. It is for the receiver of a
// webhook. body is the body as it was received. Signatures are compared in constant time. To change the secret, verify
// with the new one and then with the old one. A tolerance of 0 is DefaultTolerance. Keep HeaderID for as long to drop
// what is sent again within it.
func Verify(secret []byte, header http.Header, body []byte, tolerance time.Duration) error {
	if tolerance <= 0 {
		tolerance = DefaultTolerance
	}
	id, timestamp := header.Get(HeaderID), header.Get(HeaderTimestamp)
	if len(secret) == 0 || id == "" {
		return ErrSignature
	}
	want, found := mac(secret, id, timestamp, body), false
	for _, signature := range strings.Fields(header.Get(HeaderSignature)) {
		encoded, ok := strings.CutPrefix(signature, version)
		got, err := base64.StdEncoding.DecodeString(encoded)
		if ok && err == nil && hmac.Equal(got, want) {
			found = true
		}
	}
	if !found {
		return ErrSignature
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return ErrTimestamp
	}
	return nil
}

// Config configures a webhook. Only URL is required.
type Config struct {
	// URL receives a POST for each notice. It is a secret: it stands in no error and in no log line. It must be of
	// https or http.
	URL string
	// Body makes the body of a request. Default: JSON, the notice as docs/notices.md describes it. Slack is the other
	// one.
	Body func(notify.Notice) ([]byte, error)
	// Secret signs each request, as Verify checks it. It must have at least 16 bytes. Default: none, requests have no
	// signature.
	Secret []byte
	// Header is added to each request, such as an Authorization. Default: none.
	Header http.Header
	// Client sends the requests: set its Transport for TLS and proxies, and its Timeout for less than 10 s. Its
	// CheckRedirect is not used: a redirect to another host is an error. Default: http.DefaultClient.
	Client *http.Client
}

func (c *Config) setDefaults() {
	if c.Body == nil {
		c.Body = func(n notify.Notice) ([]byte, error) { return json.Marshal(n) }
	}
	if c.Client == nil {
		c.Client = http.DefaultClient
	}
	c.Header = maps.Clone(c.Header)
}

// validate returns an error without a word of the URL.
func (c *Config) validate() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, errors.New("webhook: Config.URL is not an absolute address of https or http: give the whole address " +
			"(it is a secret, and not shown)")
	}
	if len(c.Secret) > 0 && len(c.Secret) < 16 {
		return nil, fmt.Errorf("webhook: Config.Secret has %d bytes: it must have at least 16, of a random source",
			len(c.Secret))
	}
	for name, values := range c.Header {
		for _, value := range values {
			if strings.ContainsAny(name+value, "\r\n\x00") {
				return nil, fmt.Errorf("webhook: Config.Header[%q] has a line break: leave it out", name)
			}
		}
	}
	return u, nil
}
