// Package operator is a program on call. It has the address of a console and a token, and imports nothing of Spillway:
// what it knows of the API is in docs/api.md and openapi.json.
package operator

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// client speaks to the API as one person.
type client struct{ base, token string }

// problem is why a request was not answered.
type problem struct {
	Type, Title, Detail string
	Status              int
}

func (p *problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Title, p.Detail) }

// get reads an address into a value.
func (c client) get(ctx context.Context, path string, into any) error {
	return c.do(ctx, http.MethodGet, path, "", nil, into)
}

// post sends a request that takes effect once, under a key of its own.
func (c client) post(ctx context.Context, path string, body, into any) error {
	return c.do(ctx, http.MethodPost, path, newKey(), body, into)
}

func (c client) do(ctx context.Context, method, path, key string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", key)
	} else {
		request.Body, request.ContentLength = http.NoBody, 0
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= 400 {
		p := &problem{Status: answer.StatusCode}
		_ = json.Unmarshal(read, p) // a proxy may have answered, in HTML
		return fmt.Errorf("%s %s: %w", method, path, p)
	}
	return json.Unmarshal(read, into)
}

// watch looks at a campaign every second, until see is content with its state.
func (c client) watch(ctx context.Context, id string, see func(campaign) (enough bool)) error {
	for {
		var now campaign
		if err := c.get(ctx, "campaigns/"+id, &now); err != nil || see(now) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// newKey is a UUID.
func newKey() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
