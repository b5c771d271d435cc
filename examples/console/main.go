package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen at; port 0 takes a free one")
	limit := flag.Duration("for", 0, "end after this time (default: at Ctrl-C)")
	seed := flag.Uint64("seed", 1, "seed of the faults")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if *limit > 0 {
		ctx, stop = context.WithTimeout(ctx, *limit)
	}
	err := run(ctx, os.Stdout, *addr, *seed)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, out io.Writer, addr string, seed uint64) (err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // the server closes it too
	db, cleanUp, err := openDatabase()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cleanUp()) }()
	s, err := newService(ctx, db, seed)
	if err != nil {
		return err
	}
	handler, err := s.pages()
	if err != nil {
		return err
	}
	stopRouter, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopRouter()) }()
	stopTraffic := s.receive(ctx, 300*time.Millisecond)
	defer stopTraffic()
	fmt.Fprintf(out, "The service is at http://%[1]s/ and its console at http://%[1]s/deadletters/\nWebhooks fail. "+
		"Ctrl-C ends the demo.\n", listener.Addr())
	return serve(ctx, listener, handler)
}

func openDatabase() (*sql.DB, func() error, error) {
	folder, err := os.MkdirTemp("", "spillway-console-")
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("sqlite",
		"file:"+filepath.Join(folder, "webhooks.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(folder))
	}
	cleanUp := func() error { return errors.Join(db.Close(), os.RemoveAll(folder)) }
	if _, err := db.Exec(webhooks.Schema); err != nil {
		return nil, nil, errors.Join(err, cleanUp())
	}
	return db, cleanUp, nil
}
