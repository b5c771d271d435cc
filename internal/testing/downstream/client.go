package downstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/classify"
)

// Client calls a Server.
type Client struct {
	address string
	timeout time.Duration
	http    *http.Client
}

// NewClient returns a client of the server at an address. A call without an answer ends after timeout. Close the
// client.
func NewClient(address string, timeout time.Duration) *Client {
	return &Client{address, timeout, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
}

// Call asks the service to do what the message with the id is about. Its error is the transport's own, wrapped. A 503
// answer with Retry-After becomes classify.Away with that wait, and any other failure an error without a mark.
func (c *Client) Call(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.address+"/?id="+url.QueryEscape(id),
		nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("call the downstream: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if response.StatusCode == http.StatusOK {
		return nil
	}
	err = fmt.Errorf("the downstream answered %s", response.Status)
	if seconds, bad := strconv.Atoi(response.Header.Get("Retry-After")); bad == nil {
		return classify.Away(err, classify.RetryAfter(time.Duration(seconds)*time.Second))
	}
	return err
}

// Close closes the client's idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
