package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// growth compares the time of a claim with many kept keys and with few, and again while the many are purged.
func growth(ctx context.Context, p plan, to io.Writer) (err error) {
	few, err := openFilled(ctx, p.few)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, few.Close()) }()
	many, err := openFilled(ctx, p.keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, many.Close()) }()
	alternate := func() (a, b float64, err error) {
		medians, err := harness.Alternate(p.rounds,
			func() (float64, error) {
				return many.claim(ctx, p.claims)
			}, func() (float64, error) { return few.claim(ctx, p.claims) })
		if err != nil {
			return 0, 0, err
		}
		return medians[0], medians[1], nil
	}
	long, short, err := alternate()
	if err != nil {
		return err
	}
	var early bool // the purge ended before the claims beside it, and the ratio says less
	purged := make(chan error, 1)
	purging, stop := context.WithCancel(ctx)
	go func() {
		var err error
		early, err = many.purge(purging)
		purged <- err
	}()
	during, beside, err := alternate()
	stop()
	if err := errors.Join(err, <-purged); err != nil {
		return err
	}
	if err := harness.Print(to, "idempotency_growth",
		harness.Figure{"db": "postgres", "keys": p.few, "claim_us": int(short)}); err != nil {
		return err
	}
	return harness.Print(to, "idempotency_growth",
		harness.Figure{"db": "postgres", "keys": p.keys, "claim_us": int(long),
			"ratio": harness.Hundredths(long / short), "ratio_during_purge": harness.Hundredths(during / short),
			"claim_us_during_purge": int(during), "claim_us_of_few_beside": int(beside),
			"purge_ended_early": early})
}

// openFilled makes a database with n kept keys, applied over the past 30 days.
func openFilled(ctx context.Context, n int) (*database, error) {
	d, err := open(ctx, sides[0])
	if err != nil {
		return nil, err
	}
	if err := d.fill(ctx, n); err != nil {
		return nil, errors.Join(fmt.Errorf("fill: %w", err), d.Close())
	}
	return d, nil
}

const month = 30 * 24 * time.Hour

func (d *database) fill(ctx context.Context, n int) error {
	const part = 1_000_000
	for done := 0; done < n; done += part {
		_, err := d.ExecContext(ctx, `INSERT INTO spillway_keys (consumer, id, applied_at)
SELECT 'bench', gen_random_uuid()::text, $1 + ($2::bigint * i / $3) FROM generate_series($4::bigint, $5::bigint) i`,
			time.Now().Add(-month).UnixMilli(), month.Milliseconds(), n, done+1, min(done+part, n))
		if err != nil {
			return err
		}
	}
	for _, statement := range []string{`VACUUM ANALYZE spillway_keys`, `CHECKPOINT`} {
		if _, err := d.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// claim is the median time in microseconds of claims of new keys, each of which is committed, but not on the clock.
func (d *database) claim(ctx context.Context, n int) (float64, error) {
	var took []float64
	for range n {
		began := time.Now()
		c, err := d.keys.Claim(ctx, idempotency.Entry{Key: idempotency.Key{Consumer: "bench", ID: watermill.NewUUID()}})
		took = append(took, float64(time.Since(began).Microseconds()))
		if err == nil {
			err = c.Commit(nil)
		}
		if err != nil {
			return 0, err
		}
	}
	return harness.Median(took), nil
}

// purge removes half of the keys as a router's plugin does, until ctx ends, and reports whether it was done before.
func (d *database) purge(ctx context.Context) (done bool, err error) {
	const most = 1000 // keys of a batch, as the plugin's
	for before := time.Now().Add(-month / 2); ctx.Err() == nil; {
		began := time.Now()
		n, err := d.keys.Purge(ctx, before, most)
		if ctx.Err() != nil {
			break
		}
		if err != nil || n < most {
			return err == nil, err
		}
		time.Sleep(3 * time.Since(began))
	}
	return false, nil
}
