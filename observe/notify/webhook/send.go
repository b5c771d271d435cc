package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
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
