package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/examples/api/operator"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func main() {
	messages := flag.Int("messages", 800, "orders to publish, of which one in four fails")
	seed := flag.Uint64("seed", 1, "seed of the order in which they fail")
	client := flag.Bool("client", false, "generate a client of openapi.json instead, and run it against the service")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *client {
		if _, err := run(ctx, "generated", 64, *seed); err != nil {
			fmt.Fprintln(os.Stderr, "api:", err)
			os.Exit(1)
		}
		return
	}
	for _, by := range []string{"http", "command"} {
		r, err := run(ctx, by, *messages, *seed)
		line, _ := json.Marshal(r) // a struct of numbers
		fmt.Printf("%s\n", line)
		if err = errors.Join(err, r.check()); err != nil {
			fmt.Fprintln(os.Stderr, "api:", err)
			os.Exit(1)
		}
	}
}

// run plays the whole incident: a program closes it over HTTP, or the command does.
func run(ctx context.Context, by string, messages int, seed uint64,
	see ...func(http.Handler) http.Handler) (r result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("the time was up"))
	defer cancel()
	db, cleanUp, err := openDatabase(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	s, err := newService(ctx, db)
	if err != nil {
		return r, err
	}
	for _, wrap := range see {
		s.web = wrap(s.web)
	}
	stop, err := s.start(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	orders, kinds := newOrders(messages, seed)
	if err := s.live.Publish(topic, orders...); err != nil {
		return r, err
	}
	failed := 0
	for _, k := range kinds {
		if k != fine {
			failed++
		}
	}
	if err := wait(ctx, "the orders that fail", func() (bool, error) {
		n, err := s.store.Count(ctx, letters.Filter{})
		done, errDone := effects(ctx, db)
		return n == failed && len(done) == messages-failed, errors.Join(err, errDone)
	}); err != nil {
		return r, err
	}
	server := httptest.NewServer(s.web)
	defer server.Close()
	if by == "generated" {
		return r, byGenerated(ctx, server.URL)
	}
	if r.By = by; by == "command" {
		r.Report, err = byCommand(ctx, server.URL, func() { s.handler.fixed.Store(true) })
	} else {
		r.Report, err = operator.Close(ctx, server.URL, "token-ann", "token-bob")
	}
	if err != nil {
		return r, err
	}
	return r, judge(ctx, db, s.store, kinds, &r)
}

// wait waits until something is so.
func wait(ctx context.Context, what string, is func() (bool, error)) error {
	for {
		if done, err := is(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func openDatabase(ctx context.Context) (*sql.DB, func() error, error) {
	folder, err := os.MkdirTemp("", "spillway-api-")
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("sqlite",
		"file:"+filepath.Join(folder, "shop.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(folder))
	}
	cleanUp := func() error { return errors.Join(db.Close(), os.RemoveAll(folder)) }
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, nil, errors.Join(err, cleanUp())
	}
	return db, cleanUp, nil
}
