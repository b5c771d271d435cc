// Command webhooks runs real GitHub events through a router that Spillway protects, on an embedded pub/sub and SQLite:
// faults happen, failed events are set aside, the fix is deployed, and a redrive brings them back.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func main() {
	input := flag.String("input", "", "file of events, a line {\"event\": name, \"payload\": {...}} each (default: 60 "+
		"that are built in)")
	seed := flag.Uint64("seed", 1, "seed of the faults")
	flag.Parse()
	result, err := run(*input, *seed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhooks:", err)
		os.Exit(1)
	}
	fmt.Println(result.JSON())
	if !result.Good() {
		os.Exit(1)
	}
}

func run(input string, seed uint64) (result webhooks.Result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	events, err := webhooks.Load(input)
	if err != nil {
		return result, err
	}
	deliveries, faults := webhooks.Prepare(events, seed)
	db, cleanUp, err := openDatabase()
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	tally := &webhooks.Tally{}
	live := gochannel.NewGoChannel(gochannel.Config{}, nil)
	router, store, err := newRouter(ctx, db, live, faults, tally)
	if err != nil {
		return result, err
	}
	done := make(chan error, 1)
	go func() { done <- router.Run(ctx) }()
	defer func() { err = errors.Join(err, router.Close(), <-done) }()
	select {
	case <-router.Running():
	case err := <-done:
		done <- nil
		return result, err
	}

	fmt.Printf("%d events in %d deliveries, faults of seed %d\n", len(events), len(deliveries), seed)
	if err := live.Publish("webhooks", deliveries...); err != nil {
		return result, err
	}
	if err := webhooks.Progress(ctx, os.Stdout, "handled", len(deliveries), tally.Settled); err != nil {
		return result, err
	}
	if err := tally.Before(ctx, &result, db, store); err != nil {
		return result, err
	}
	if err := webhooks.Table(ctx, os.Stdout, "Dead letters by cause", store); err != nil {
		return result, err
	}

	fmt.Println("The fix is deployed: events of organisations are known, releases need no assets, the downstream is up.")
	faults.Fixed.Store(true)
	settled := tally.Settled()
	report, err := redrive.Drain(ctx, store, live,
		redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"webhooks"}, Rate: 50, By: "demo"}})
	if err != nil {
		return result, err
	}
	result.Redriven = report.Redriven
	if err := webhooks.Progress(ctx, os.Stdout, "redriven", report.Redriven, func() int {
		return tally.Settled() - settled
	}); err != nil {
		return result, err
	}
	expected := int(tally.Applied.Load())
	if err := webhooks.Progress(ctx, os.Stdout, "summaries", expected, tally.Outputs); err != nil {
		return result, err
	}
	if err := webhooks.Table(ctx, os.Stdout, "Dead letters that remain", store); err != nil {
		return result, err
	}
	return result, tally.After(ctx, &result, deliveries, db, store)
}

// newRouter is what a service has anyway, a router with its handlers, and the few lines that protect it.
func newRouter(ctx context.Context, db *sql.DB, live *gochannel.GoChannel, faults *webhooks.Faults,
	tally *webhooks.Tally) (*message.Router, *letters.Store, error) {
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return nil, nil, err
	}
	dlc, err := spillway.New(ctx, spillway.Config{
		Service: service,
		DB:      db,
		Retry: middleware.RetryConfig{
			Backoff: middleware.Backoff{Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond},
			Hooks: middleware.RetryHooks{OnRetry: func(context.Context, middleware.Attempt,
				time.Duration) {
				tally.Retries.Add(1)
			}},
		},
		Queue: poison.QueueConfig{Hooks: poison.Hooks{
			OnDeadLetter: func(context.Context, poison.Letter) { tally.SetAside.Add(1) },
		}},
		Receiver: &idempotency.ReceiverConfig{
			Hooks: idempotency.Hooks{
				OnApplied:   func(_ context.Context, key idempotency.Key) { count(&tally.Applied, key) },
				OnDuplicate: func(_ context.Context, key idempotency.Key) { count(&tally.Absorbed, key) },
			},
		},
	})
	if err != nil {
		return nil, nil, err
	}
	dlc.Attach(router)

	// A handler that stops closes its publisher, and with this pub/sub that is the subscriber too: one instance each.
	summaries := gochannel.NewGoChannel(gochannel.Config{}, nil)
	router.AddHandler(storeEvents, "webhooks", live, "summaries", summaries, faults.Handle)
	router.AddConsumerHandler("receive-summaries", "summaries", summaries, tally.Receive)
	return router, dlc.Letters(), nil
}

const (
	service     = "demo"
	storeEvents = "store-events"
)

// count leaves out the handler of the summaries, which the channel protects too.
func count(counter *atomic.Int64, key idempotency.Key) {
	if key.Consumer == service+"/"+storeEvents {
		counter.Add(1)
	}
}

func openDatabase() (*sql.DB, func() error, error) {
	folder, err := os.MkdirTemp("", "spillway-webhooks-")
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("sqlite",
		"file:"+filepath.Join(folder, "webhooks.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, nil, err
	}
	cleanUp := func() error { return errors.Join(db.Close(), os.RemoveAll(folder)) }
	if _, err := db.Exec(webhooks.Schema); err != nil {
		return nil, nil, errors.Join(err, cleanUp())
	}
	return db, cleanUp, nil
}
