package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// result is the line of a round.
type result struct {
	Figure    string  `json:"figure"`
	On        string  `json:"on"`
	Round     string  `json:"round"`
	IDs       int     `json:"ids"`
	Lost      int     `json:"lost"`    // no effect and no letter in time
	Doubled   int     `json:"doubled"` // two effects, or an effect and a letter
	Healthy   int     `json:"healthy_letters"`
	Letters   int     `json:"letters"`
	Gap       float64 `json:"longest_gap_seconds"`
	FullAfter float64 `json:"full_rate_after_repair_seconds"`
}

func (r *result) good() bool { return r.Lost+r.Doubled+r.Healthy == 0 }

// begins is when a round breaks something.
const begins = 5 * time.Second

func (p *plan) round(ctx context.Context, c *cluster, r round) (_ *result, err error) {
	name := fmt.Sprintf("clusters_%d", time.Now().UnixNano())
	db, err := openBase(ctx, c.database, name)
	if err != nil {
		return nil, err
	}
	s := &service{cluster: c, topic: name, db: db, logger: watermill.NopLogger{}, second: make(map[int64]int)}
	if os.Getenv("VERBOSE") != "" {
		s.logger = watermill.NewStdLogger(false, false)
	}
	defer func() {
		if err == nil { // a name of a schema cannot be an argument; it is our own
			_, err = db.Exec(`DROP SCHEMA ` + name + ` CASCADE`)
		}
		err = errors.Join(err, db.Close())
	}()
	if err := c.prepare(ctx, name); err != nil {
		return nil, err
	}
	for range instances {
		stop, err := s.start(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	published := make(chan []string, 1)
	var failed error
	go func() {
		ids, err := s.publish(ctx, p)
		failed = err
		published <- ids
	}()
	if err := sleep(ctx, begins); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "clusters: %s: %s\n", c.name, r.name)
	broken := r.breaks(ctx, name)
	repaired := time.Now()
	ids := <-published
	if err := errors.Join(broken, failed); err != nil {
		return nil, err
	}
	all := &result{Figure: "clusters", On: c.name, Round: r.name, IDs: len(ids)}
	for until := time.Now().Add(p.within); ; {
		open, err := s.account(ctx, ids, all)
		if err == nil && open == 0 {
			break
		}
		if time.Now().After(until) {
			all.Lost = open
			return all, err
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
	all.Gap, all.FullAfter = s.gap.Seconds(), s.fullAfter(repaired, p.rate).Seconds()
	return all, nil
}

// fullAfter is how long after the repair a second had the rate of the publisher.
func (s *service) fullAfter(repaired time.Time, rate int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for second := repaired.Unix(); second <= s.last.Unix(); second++ {
		if s.second[second]*10 >= rate*9 {
			return max(0, time.Unix(second, 0).Sub(repaired))
		}
	}
	return max(0, s.last.Sub(repaired))
}

// account counts by id, and returns how many messages have no end yet.
func (s *service) account(ctx context.Context, ids []string, all *result) (open int, err error) {
	effects, err := s.times(ctx, `SELECT id, count(*) FROM effects GROUP BY id`)
	if err != nil {
		return len(ids), err
	}
	letters, err := s.times(ctx, `SELECT id, count(*) FROM spillway_dead_letters GROUP BY id`)
	if err != nil {
		return len(ids), err
	}
	return judge(ids, effects, letters, all), nil
}

func judge(ids []string, effects, letters map[string]int, all *result) (open int) {
	all.Lost, all.Doubled, all.Healthy, all.Letters = 0, 0, 0, len(letters)
	for _, id := range ids {
		switch {
		case effects[id]+letters[id] == 0:
			open++
		case effects[id] > 1 || effects[id] > 0 && letters[id] > 0:
			all.Doubled++
		}
		if letters[id] > 0 && !bad(id) {
			all.Healthy++
		}
	}
	return open
}

func (s *service) times(ctx context.Context, query string) (times map[string]int, err error) {
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	times = make(map[string]int)
	for rows.Next() {
		var id sql.NullString
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			return nil, err
		}
		times[id.String] = n
	}
	return times, rows.Err()
}
