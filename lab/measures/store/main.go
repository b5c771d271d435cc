// Command store measures the store of dead letters: how long the questions of an operator take with many letters
// waiting, and how many letters a second it takes. It prints JSON lines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/lab/internal/backlog"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// plan says how much is measured.
type plan struct {
	databases []string
	rows      int
	copies    bool          // most letters are copies, made within the server
	asks      int           // of each question
	round     time.Duration // of puts
}

func main() {
	var p plan
	flag.IntVar(&p.rows, "rows", 100_000, "letters that wait")
	flag.IntVar(&p.asks, "asks", 100, "times that each question is asked")
	flag.DurationVar(&p.round, "round", 3*time.Second, "how long letters are put, by 1 and by 8 writers")
	flag.BoolVar(&p.copies, "copies", false, "copy letters within the server, with small bodies, instead of putting each")
	only := flag.String("db", "postgres,mariadb,sqlite", "databases to measure")
	flag.Parse()
	p.databases = strings.Split(*only, ",")
	harness.Main(4*time.Hour, p.run)
}

func (p plan) run(ctx context.Context, to io.Writer) error {
	for _, name := range p.databases {
		if err := p.measure(ctx, name, to); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (p plan) measure(ctx context.Context, name string, to io.Writer) (err error) {
	d, err := harness.Open(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if name == "sqlite" {
		if _, err := d.ExecContext(ctx, `PRAGMA synchronous = NORMAL`); err != nil {
			return err
		}
	}
	d.SetMaxOpenConns(10)
	store, err := letters.NewStore(ctx, d.DB, letters.Config{Service: "bench"})
	if err != nil {
		return err
	}
	for _, writers := range []int{1, 8} {
		perSecond, err := p.put(ctx, store, writers)
		if err == nil {
			err = harness.Print(to, "store_put_per_s",
				harness.Figure{"db": name, "writers": writers, "per_s": harness.Hundredths(perSecond)})
		}
		if err != nil {
			return err
		}
	}
	if p.copies {
		err = backlog.Copy(ctx, d, store, p.rows)
	} else {
		err = backlog.Fill(ctx, store, p.rows)
	}
	if err != nil {
		return err
	}
	if name == "postgres" { // as autovacuum does within minutes
		if _, err := d.ExecContext(ctx, `VACUUM ANALYZE`); err != nil {
			return err
		}
	}
	for _, q := range questions(store, p.rows) {
		asks := p.asks
		if q.most > 0 {
			asks = min(asks, q.most)
		}
		took := make([]time.Duration, asks)
		for i := range took {
			begun := time.Now()
			if err := q.ask(ctx, i); err != nil {
				return fmt.Errorf("%s: %w", q.what, err)
			}
			took[i] = time.Since(begun)
		}
		slices.Sort(took)
		err := harness.Print(to, "store_ms", harness.Figure{"db": name, "rows": p.rows, "what": q.what,
			"p50": milliseconds(took[len(took)/2]), "p99": milliseconds(took[len(took)*99/100])})
		if err != nil {
			return err
		}
	}
	return nil
}

func milliseconds(d time.Duration) any {
	return harness.Hundredths(float64(d) / float64(time.Millisecond))
}

// put returns how many letters a second so many writers put, one after the other.
func (p plan) put(ctx context.Context, store *letters.Store, writers int) (perSecond float64, err error) {
	var put atomic.Int64
	var failed atomic.Pointer[error]
	begun := time.Now()
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for n := 0; time.Since(begun) < p.round && failed.Load() == nil && ctx.Err() == nil; n++ {
				if err := store.Publish("bench.dlq",
					backlog.Letter(fmt.Sprintf("put-%d-%d-%d", writers, i, n), n)); err != nil {
					failed.Store(&err)
					return
				}
				put.Add(1)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(put.Load()) / time.Since(begun).Seconds(), ctx.Err()
}
