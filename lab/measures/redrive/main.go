// Command redrive measures how fast and how evenly dead letters come back, on a real Kafka and PostgreSQL, and prints
// JSON lines.
//
// Each round measures the raw publishes of a publisher, and then each way to redrive letters with the same publisher
// and as many letters in flight. The medians of the rounds are compared.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// plan says how much is measured.
type plan struct {
	rounds, letters int   // of each side
	concurrency     []int // letters in flight
	paces           []pace
}

// pace is a campaign at a rate.
type pace struct {
	rate float64
	last time.Duration
}

func main() {
	p := plan{}
	flag.IntVar(&p.rounds, "rounds", 2, "rounds that count; one more warms up")
	flag.IntVar(&p.letters, "letters", 2000, "letters of each side of a round")
	concurrency := flag.String("concurrency", "16,1", "letters in flight, each of which is measured")
	paces := flag.String("rates", "100x20s,1000x10s", "rates in letters per second, and for how long")
	flag.Parse()
	harness.Main(10*time.Minute, func(ctx context.Context, to io.Writer) error {
		if err := p.parse(*concurrency, *paces); err != nil {
			return err
		}
		return p.run(ctx, to)
	})
}

func (p *plan) parse(concurrency, paces string) error {
	for text := range strings.SplitSeq(concurrency, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-concurrency %s: give numbers, such as 16,1", concurrency)
		}
		p.concurrency = append(p.concurrency, n)
	}
	for text := range strings.SplitSeq(paces, ",") {
		if text == "" {
			continue
		}
		rate, last, _ := strings.Cut(text, "x")
		r, err := strconv.ParseFloat(rate, 64)
		d, bad := time.ParseDuration(last)
		if err != nil || bad != nil || r <= 0 || d <= 0 {
			return fmt.Errorf("-rates %s: give rates and times, such as 100x60s,1000x10s", paces)
		}
		p.paces = append(p.paces, pace{r, d})
	}
	return nil
}

// bench is what is measured: letters of one topic.
type bench struct {
	cluster   *harness.Cluster
	topic     string
	store     *letters.Store
	campaigns *campaigns.Campaigns
}

func (p plan) run(ctx context.Context, to io.Writer) (err error) {
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
	b := &bench{cluster: kafka, topic: "bench-redrive-" + watermill.NewShortUUID()}
	if err := kafka.Create(b.topic); err != nil {
		return err
	}
	if b.store, err = letters.NewStore(ctx, db.DB, letters.Config{Service: "bench"}); err != nil {
		return err
	}
	if b.campaigns, err = campaigns.New(ctx, b.store, campaigns.Config{Allow: []string{b.topic}}); err != nil {
		return err
	}
	for _, n := range p.concurrency {
		if err := b.compare(to, p, n); err != nil {
			return err
		}
	}
	for _, pace := range p.paces {
		if err := b.keep(to, pace); err != nil {
			return err
		}
	}
	return nil
}

// compare prints a line for each way to bring letters back, with so many of them in flight.
func (b *bench) compare(to io.Writer, p plan, concurrency int) error {
	sides := []side{
		{"", func() (float64, error) { return b.raw(p.letters, concurrency) }},
		{"postgres store", func() (float64, error) { return b.campaign(p.letters, concurrency) }},
		{"postgres store, redrive.Drain", func() (float64, error) { return b.drain(p.letters, concurrency) }},
		{"kafka, redrive.DrainTopic", func() (float64, error) { return b.drainTopic(p.letters, concurrency) }},
		{"kafka, Watermill's Requeuer", func() (float64, error) { return b.requeue(p.letters, concurrency) }},
	}
	measures := make([]func() (float64, error), len(sides))
	for i, s := range sides {
		measures[i] = s.measure
	}
	medians, err := harness.Alternate(p.rounds, measures...)
	if err != nil {
		return err
	}
	for i, s := range sides {
		if i == 0 { // the publisher alone
			continue
		}
		err := harness.Print(to, "redrive_per_s", harness.Figure{
			"source": s.source, "to": "kafka", "concurrency": concurrency,
			"raw_publish_per_s": harness.Whole(medians[0]), "per_s": harness.Whole(medians[i]),
			"ratio": harness.Hundredths(medians[i] / medians[0]),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// side is one way to bring letters back.
type side struct {
	source  string
	measure func() (float64, error)
}
