package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// page is an address of the console, or some of the same kind.
type page struct {
	name string
	path func(i int) string
	body string // of a POST to the API
}

// addresses are what people click at.
func addresses(ctx context.Context, store *letters.Store) ([]page, error) {
	last, err := hidden.Of(store).LastSeq(ctx)
	if err != nil {
		return nil, err
	}
	at := func(i int) int64 { return last - int64(i*7919)%(last/2+1) }
	fixed := func(name, path string) page { return page{name, func(int) string { return path }, ""} }
	seen := func(name, path string) page {
		return page{name, func(i int) string { return fmt.Sprintf(path, at(i)) }, ""}
	}
	plan := fixed("api: dry run, a handler", "/api/v1/plan")
	plan.body = `{"filter":{"handlers":["handler-3"]},"rate":20}`
	return []page{
		fixed("overview", "/"), fixed("causes", "/causes"), fixed("letters", "/letters"),
		fixed("letters, a handler", "/letters?handler=handler-3"),
		fixed("letters, a rare handler", "/letters?handler=rare"),
		fixed("letters, a text", "/letters?text=region+xxx"), fixed("campaigns", "/campaigns"),
		fixed("audit", "/audit"),
		fixed("redrive, a rare handler", "/redrive?take=all&handler=rare&upto=1000000&count=100"),
		fixed("redrive, a handler", "/redrive?take=all&handler=handler-3&upto=2000000&count=125000"),
		seen("letters, further on", "/letters?after=%d"), seen("letter", "/letters/%d"),
		seen("letter, hex", "/letters/%d?view=hex"),
		fixed("api: causes", "/api/v1/causes"), fixed("api: letters", "/api/v1/letters"),
		fixed("api: letters, a rare handler", "/api/v1/letters?handler=rare"),
		fixed("api: count", "/api/v1/letters/count"),
		seen("api: letters, further on", "/api/v1/letters?after=%d"), seen("api: letter", "/api/v1/letters/%d"),
		fixed("api: audit", "/api/v1/audit"), fixed("api: health", "/api/v1/health"), plan,
	}, nil
}

// crowd are people who click, and what they waited for.
type crowd struct {
	url    string
	pages  []page
	client *http.Client

	mu   sync.Mutex
	took map[string][]time.Duration
	most map[string]int64 // bytes
}

func newCrowd(url string, pages []page) *crowd {
	// what comes is counted as it comes
	transport := &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
	return &crowd{url: url, pages: pages, client: &http.Client{Transport: transport},
		took: map[string][]time.Duration{},
		most: map[string]int64{}}
}

// ask asks for a page. A first look counts its bytes alone.
func (c *crowd) ask(ctx context.Context, p page, first bool) error {
	path := p.path(rand.IntN(1 << 20))
	method := http.MethodGet
	if p.body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(p.body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json") // of a POST
	r.Header.Set("Accept-Encoding", "gzip")
	begun := time.Now()
	response, err := c.client.Do(r)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, response.Body)
	took := time.Since(begun)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d, %w", path, response.StatusCode, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most[p.name] = max(c.most[p.name], n)
	if !first {
		c.took[p.name] = append(c.took[p.name], took)
	}
	return nil
}

// run lets the people of a plan click until its round is over.
func (c *crowd) run(ctx context.Context, p plan) error {
	defer c.client.CloseIdleConnections()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	until := time.Now().Add(p.round)
	var all sync.WaitGroup
	for range p.people {
		all.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-time.After(p.pause/2 + time.Duration(rand.Int64N(int64(p.pause)+1))):
					if err := c.ask(ctx, c.pages[rand.IntN(len(c.pages))], false); err != nil {
						cancel(err)
					}
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// of returns what people waited for a page, in order, and the most bytes that came.
func (c *crowd) of(name string) ([]time.Duration, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.took[name])
	return c.took[name], c.most[name]
}

func (c *crowd) clicks() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, took := range c.took {
		n += len(took)
	}
	return n
}
