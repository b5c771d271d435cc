package redrive

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/poison"
)

// DrainConfig configures Store.Drain. Only Allow is required.
type DrainConfig struct {
	// Allow lists at most 500 topics, by their exact names, that letters may be published to. No letter goes anywhere else,
	// whatever its metadata say. Letters of other topics stay as they are: Report.Refused and RefusedTopics count them.
	Allow []string
	// To is published to instead of each letter's origin topic. It must be in Allow.
	To string
	// Entry names the topic at which a letter enters instead of its origin topic, or "" for its origin topic. It is the origin
	// topic that must be in Allow, in either case. The method ReentryTopic of stages.Stages lets letters enter at the first retry
	// stage, apart from live traffic. The name must not come from the letter: nothing else judges it.
	Entry func(poison.Letter) string
	// Filter chooses the letters. Default: all that wait. Filter.Limit is not used here, see Max.
	Filter Filter
	// Max is how many letters are taken at the most. 0 means all.
	Max int
	// Rate is how many letters are published per second at the most. 0 means as fast as possible.
	Rate float64
	// Concurrency is how many are published at the same time. Default: 1, which keeps the order of the store.
	Concurrency int
	// MaxRedrives is how often a letter comes back; one that failed again after that is quarantined. Default:
	// DefaultMaxRedrives.
	MaxRedrives int
	// By is who does it, for the record.
	By string
	// Lease is for how long letters are reserved, by the database's clock. The drain renews it three times a lease, also while
	// a publisher takes long. After a crash the letters in hand stay out of reach for that long. Default: 1 min.
	Lease time.Duration
	// PublishAttempts is how often a letter is offered to the publisher. Default: 3.
	PublishAttempts int
	// Logger receives refusals, never a payload. Default: none.
	Logger watermill.LoggerAdapter
	// Hooks are called on what happens.
	Hooks Hooks
}

// Report says what a drain did. It is right up to the moment when the drain ended, also beside an error.
type Report struct {
	// ID is the x-redrive-id of all that was redriven.
	ID string
	// Taken is how many letters were worked on: Redriven, Quarantined, Parked, Failed, those given back because the drain was
	// interrupted, those that another took over before they were published, and, of a topic, Refused.
	Taken int
	// Redriven were published to their topic.
	Redriven int
	// Quarantined had come back too often.
	Quarantined int
	// Refused may not go where they came from: their topic is not in Allow. Of a store they are those that Filter chooses
	// when the drain starts; they stay as they are and wait for a drain that allows their topic. Of a topic they are parked.
	Refused int
	// RefusedTopics are the topics of Refused, those with the most letters first, at most 20. Only of a store.
	RefusedTopics []RefusedTopic
	// Parked were not chosen, or not letters. Only of a topic: a store does not take them.
	Parked int
	// Failed were not accepted by the publisher. Of a store they wait again; of a topic they are parked.
	Failed int
	// LeasesLost counts letters that another took over, or that arrived again, while they were worked on. Those
	// that were published by then will be published once more.
	LeasesLost int
}

// RefusedTopic is a topic that a drain may not publish to.
type RefusedTopic struct {
	// Topic is an origin topic. It is empty for letters that name none.
	Topic string
	// Letters is how many letters came from there.
	Letters int
}

func (c *DrainConfig) rules() rules {
	return rules{
		owner: "DrainConfig", allow: c.Allow, to: c.To, entry: c.Entry, rate: c.Rate, concurrency: c.Concurrency, maxRedrives: c.MaxRedrives,
		attempts: c.PublishAttempts, by: c.By, logger: c.Logger, hooks: c.Hooks,
	}
}

func (c *DrainConfig) validate() error {
	if c.Lease == 0 {
		c.Lease = time.Minute
	}
	if c.Lease < 0 || c.Max < 0 {
		return fmt.Errorf("redrive: DrainConfig.Lease (%s) and Max (%d) must not be negative", c.Lease, c.Max)
	}
	if len(c.Allow) > maxListed {
		return fmt.Errorf("redrive: DrainConfig.Allow lists %d topics, at most %d are possible: use several calls", len(c.Allow), maxListed)
	}
	if c.Filter.Limit != 0 {
		return errors.New("redrive: DrainConfig.Filter.Limit pages through lists: use DrainConfig.Max")
	}
	return c.Filter.validate("DrainConfig.Filter")
}

// Drain brings back the letters that are there when it starts and that config chooses, through live, whose Publish must
// confirm what it takes. Letters that arrive meanwhile are left for the next drain. A letter is marked after it was
// published; one that live refuses waits again, and after three such letters in a row the drain ends with the error.
//
// When ctx ends, Drain releases at once the letters that it has not begun. It returns the report and the error of ctx when
// the publisher has returned from the letters in hand: Publish has no context, and a drain that left a publisher behind
// could not say what became of its letters. So give the publisher's client a time-out. The wait for the rate, and between
// tries, ends with ctx; a mark takes 30 s at most.
//
// Each letter is considered once. Several drains may run at the same time, in several processes, and share the letters. A
// drain ends when it finds no letter that waits. Letters that another transaction keeps locked are tried again; if nothing
// moves for 30 s, the drain ends with an error that counts them.
func (s *Store) Drain(ctx context.Context, live message.Publisher, config DrainConfig) (Report, error) {
	if err := s.usable(ctx); err != nil {
		return Report{}, err
	}
	if err := wayBack("the live publisher of Drain", live); err != nil {
		return Report{}, err
	}
	if err := config.validate(); err != nil {
		return Report{}, err
	}
	d := &drain{rules: config.rules(), store: s, live: live, config: config, considered: make(map[int64]struct{})}
	d.rules.setDefaults()
	if err := d.rules.validate(); err != nil {
		return Report{}, err
	}
	d.report.ID = d.id

	last, err := s.lastSeq(ctx)
	if err != nil {
		return d.report, err
	}
	if last == 0 {
		return d.report, nil
	}
	if config.Filter.MaxSeq == 0 || config.Filter.MaxSeq > last {
		d.config.Filter.MaxSeq = last
	}
	if config.To == "" {
		err = d.refuse(ctx) // an error here keeps no letter from coming back
		d.config.Filter.allowed = d.allow
	}
	err = errors.Join(d.run(ctx), err)
	return d.report, err
}

// lastSeq is the Seq of the letter that arrived last, or 0.
func (s *Store) lastSeq(ctx context.Context) (last int64, err error) {
	err = s.read(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&last) },
		`SELECT COALESCE(MAX(seq), 0) FROM spillway_dead_letters`)
	if err != nil {
		return 0, fmt.Errorf("redrive: look for the last dead letter: %w", err)
	}
	return last, nil
}
