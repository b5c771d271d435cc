// Command pressure measures what becomes of the tables on PostgreSQL when another program forgets a transaction, and
// prints a JSON line as each interval ends.
//
// The forgotten transaction keeps its snapshot, so vacuum removes no row that died since: keys, letters, messages that
// wait in a stage, parked messages and the rows of campaigns pile up as dead rows, which each query may have to step
// over. The load is the same before, while and after it is open: messages at a fixed rate on two Kafka topics, one with
// stages in the database, one with the order of keys. Some fail, some become letters, and a campaign brings the letters
// back in each interval.
//
// The method is that of hardbyte's postgresql-job-queue-benchmarking: throughput and the slowest messages by interval,
// dead rows, and the sizes of tables and indexes.
//
//	make bench-pressure FLAGS='-pinned=30m -interval=1m'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// plan says how much is measured.
type plan struct {
	phase    time.Duration // before and after
	pinned   time.Duration
	interval time.Duration
	rate     int // messages a second of each topic
	keys     int // of the ordered topic
}

func main() {
	var p plan
	flag.DurationVar(&p.phase, "phase", time.Minute,
		"how long is measured before the transaction is open, and after it")
	flag.DurationVar(&p.pinned, "pinned", time.Minute, "how long the transaction is open")
	flag.DurationVar(&p.interval, "interval", 15*time.Second, "the time of each line")
	flag.IntVar(&p.rate, "rate", 250, "messages a second of each topic")
	flag.IntVar(&p.keys, "keys", 1000, "keys of the ordered topic")
	flag.Parse()
	harness.Main(2*p.phase+p.pinned+5*time.Minute, p.run)
}

func (p plan) run(ctx context.Context, to io.Writer) (err error) {
	if min(p.phase, p.pinned) < p.interval || p.interval <= 0 || p.rate < 1 || p.keys < 1 {
		return fmt.Errorf("-phase %v -pinned %v -interval %v -rate %d -keys %d: each phase has at least one interval, "+
			"and the others are above zero", p.phase, p.pinned, p.interval, p.rate, p.keys)
	}
	kafka, err := harness.Kafka(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kafka.Close()) }()
	db, err := harness.Open(ctx, "postgres")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.Effects(ctx); err != nil {
		return err
	}
	l, err := newLoad(ctx, p, kafka, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	for _, phase := range []string{"before", "pinned", "after"} {
		if err := l.during(phase, to); err != nil {
			return err
		}
	}
	return nil
}

// during prints the lines of a phase.
func (l *load) during(phase string, to io.Writer) (err error) {
	length := l.phase
	if phase == "pinned" {
		length = l.pinned
		release, err := pin(l.ctx, l.db)
		if err != nil {
			return err
		}
		defer release()
	}
	begun := time.Now()
	for n := 1; n <= int(length/l.interval); n++ {
		if err := l.bringBack(); err != nil {
			return err
		}
		select {
		case <-time.After(time.Until(begun.Add(time.Duration(n) * l.interval))):
		case err := <-l.failed:
			return err
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
		figure := harness.Figure{"phase": phase, "interval": n}
		for name, s := range map[string]*source{"staged": l.staged, "ordered": l.ordered} {
			s.report(name, l.interval, figure)
		}
		if err := sizes(l.ctx, l.db, figure); err != nil {
			return err
		}
		if err := harness.Print(to, "pressure", figure); err != nil {
			return err
		}
	}
	return nil
}
