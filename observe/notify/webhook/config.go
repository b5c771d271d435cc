package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/watermill-spillway/spillway/observe/notify"
)

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
