// Command console measures how long the pages of the console take while people click, with many letters waiting, and
// what the pages cost: bytes on the way, and memory. It prints JSON lines.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"time"

	"github.com/watermill-spillway/spillway/lab/internal/backlog"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// plan says how much is measured.
type plan struct {
	rows, people int
	round, pause time.Duration
	db           string
}

func main() {
	var p plan
	flag.IntVar(&p.rows, "rows", 1_000_000, "letters that wait")
	flag.IntVar(&p.people, "people", 20, "people who click at the same time")
	flag.DurationVar(&p.round, "round", 2*time.Minute, "how long they click")
	flag.DurationVar(&p.pause, "pause", time.Second, "how long a person looks at a page, half as long at least")
	flag.StringVar(&p.db, "db", "postgres", "postgres or mariadb")
	flag.Parse()
	harness.Main(2*time.Hour, p.run)
}

func (p plan) run(ctx context.Context, to io.Writer) (err error) {
	d, err := harness.Open(ctx, p.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	d.SetMaxOpenConns(10)
	store, err := letters.NewStore(ctx, d.DB, letters.Config{Service: "bench"})
	if err != nil {
		return err
	}
	if d.Name == "sqlite" {
		err = backlog.Fill(ctx, store, p.rows)
	} else {
		err = backlog.Copy(ctx, d, store, p.rows)
	}
	if err != nil {
		return err
	}
	all, err := campaigns.New(ctx, store, campaigns.Config{})
	if err != nil {
		return err
	}
	handler, err := console.New(console.Config{Campaigns: all, Access: func(*http.Request) (console.Person, error) {
		return console.Person{Name: "ann", Role: console.Approve}, nil
	}})
	if err != nil {
		return err
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	return p.click(ctx, to, server.URL, store)
}

// click lets people click, and prints what they waited for.
func (p plan) click(ctx context.Context, to io.Writer, url string, store *letters.Store) error {
	pages, err := addresses(ctx, store)
	if err != nil {
		return err
	}
	crowd := newCrowd(url, pages)
	for _, page := range pages { // plans and caches are there
		if err := crowd.ask(ctx, page, true); err != nil {
			return err
		}
	}
	before := heap()
	if err := crowd.run(ctx, p); err != nil {
		return err
	}
	after := heap()
	for _, page := range pages {
		took, most := crowd.of(page.name)
		if len(took) == 0 { // a short round
			if err := crowd.ask(ctx, page, false); err != nil {
				return err
			}
			took, most = crowd.of(page.name)
		}
		err := harness.Print(to, "console_ms",
			harness.Figure{"page": page.name, "db": p.db, "rows": p.rows, "people": p.people, "clicks": len(took),
				"p50": milliseconds(took[len(took)/2]), "p99": milliseconds(took[len(took)*99/100]),
				"kib": harness.Hundredths(float64(most) / 1024)})
		if err != nil {
			return err
		}
	}
	return harness.Print(to, "console_heap_mib",
		harness.Figure{"before": before, "after": after, "clicks": crowd.clicks()})
}

func milliseconds(d time.Duration) float64 {
	return harness.Hundredths(float64(d) / float64(time.Millisecond))
}

// heap is the memory in use, in MiB, once all garbage is collected.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return harness.Hundredths(float64(m.HeapAlloc) / (1 << 20))
}
