package redrive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// DrainConfig configures Drain. Only Rules.Allow is required.
type DrainConfig struct {
	Rules
	// Max is the largest number of letters that are taken. Default: all.
	Max int

	lease time.Duration // drainLease; only tests set it
}

// drainLease is how long letters are reserved, by the database's clock. Drain renews the leases of the letters in hand
// three times in it. After a crash these letters stay leased for that long.
const drainLease = time.Minute

func (c *DrainConfig) validate() error {
	if c.lease == 0 {
		c.lease = drainLease
	}
	if c.Max < 0 {
		return fmt.Errorf("redrive: DrainConfig.Max is %d: it must not be negative", c.Max)
	}
	if n := len(c.Allow) + len(c.Filter.NotTopics); n > letters.MaxListed {
		return fmt.Errorf("redrive: DrainConfig.Allow and Filter.NotTopics list %d topics, at most %d are possible: use "+
			"several calls", n, letters.MaxListed)
	}
	if c.Filter.NewestFirst {
		return errors.New("redrive: DrainConfig.Filter.NewestFirst is for lists: a drain goes in the order of arrival, " +
			"leave it out")
	}
	if c.Filter.Limit != 0 {
		return errors.New("redrive: DrainConfig.Filter.Limit pages through lists: use DrainConfig.Max")
	}
	return nil
}

// Drain redrives the letters of a Store that config chooses and that are there when it starts, through publisher, which
// must confirm what it takes. Letters that arrive later are left for the next drain. A letter is marked after it was
// published, with a Concurrency above 1 together with others and beside the next publishes: a process that dies may
// have published up to 256 letters more than Concurrency that are not marked. The next drain publishes them again. A
// letter that publisher refuses waits again. After three refused letters in a row Drain returns the error.
//
// When ctx ends, Drain at once releases the letters that it has not begun. It then waits for publisher to return,
// because Publish has no context, and returns the report and the error of ctx. So give the publisher's client a
// time-out. A mark takes at most 30 s.
//
// Each letter is considered once. Several drains, also in several processes, may run at the same time and share the
// letters. Drain returns when it finds no more letters. It tries letters again that another transaction has locked. If
// nothing moves for 30 s, Drain returns an error that counts them.
func Drain(ctx context.Context, store *letters.Store, publisher message.Publisher, config DrainConfig) (Report, error) {
	if ctx == nil {
		return Report{}, errors.New("redrive: the context is nil: use context.Background() if there is no other")
	}
	if store == nil {
		return Report{}, errors.New("redrive: the Store is nil: check the error of letters.NewStore; a channel has a store with Config.DB, " +
			"and without Config.Publisher")
	}
	working, err := newRules("DrainConfig", publisher, config.Rules)
	if err != nil {
		return Report{}, err
	}
	if err := config.validate(); err != nil {
		return Report{}, err
	}
	d := &drain{rules: working, store: store, config: config, report: Report{ID: working.id},
		considered: make(map[int64]struct{})}
	last, err := store.Inside().LastSeq(ctx)
	if err != nil || last == 0 {
		return d.report, err
	}
	if d.Filter.MaxSeq == 0 || d.Filter.MaxSeq > last {
		d.Filter.MaxSeq = last
	}
	if d.To == "" {
		err = d.countRefused(ctx) // an error here keeps no letter from coming back
		d.Filter.Topics = d.allowed(d.Filter.Topics)
		if len(d.Filter.Topics) == 0 {
			return d.report, err
		}
	}
	err = errors.Join(d.run(ctx), err)
	return d.report, err
}

// allowed returns the allowed topics among those of a filter.
func (d *drain) allowed(topics []string) []string {
	if len(topics) == 0 {
		return d.Allow
	}
	return slices.DeleteFunc(slices.Clone(topics), func(topic string) bool { return !slices.Contains(d.Allow, topic) })
}
