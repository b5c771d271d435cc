package campaigns

import (
	"context"
	"errors"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	// policyPolls is how many polls of a worker are between two looks at a policy.
	policyPolls = 10
	// causePolls is the same for a cause of which nothing could be started.
	causePolls = 60
)

// policies starts the campaigns of the policies whose time has come. What it cannot start now it looks at again.
func (r *rounds) policies(ctx context.Context) (err error) {
	for i := range r.all.config.Policies {
		p := &r.all.config.Policies[i]
		if ctx.Err() == nil && r.dueNow(p.Name, policyPolls) {
			err = errors.Join(err, r.standing(ctx, p))
		}
	}
	return err
}

// dueNow reports whether it is time for a look, and notes the next one.
func (r *rounds) dueNow(what string, polls int) bool {
	now := time.Now()
	if now.Before(r.policyAt[what]) {
		return false
	}
	r.policyAt[what] = now.Add(time.Duration(polls) * r.worker.config.Poll)
	return true
}

// standing looks at one policy: a campaign for each cause that has letters which no redrive brought back.
func (r *rounds) standing(ctx context.Context, p *Policy) error {
	c := r.all
	if err := c.seen(ctx, p.Name); err != nil {
		return err
	}
	for skip := 0; ; skip += letters.MaxListed { // behind the largest there may be causes of another topic
		causes, err := c.store.Inside().CausesBySize(ctx, p.Filter, skip, letters.MaxListed)
		for _, cause := range causes {
			if err != nil || ctx.Err() != nil {
				return err
			}
			var over bool
			if over, err = r.standingFor(ctx, p, cause); over {
				return err
			}
		}
		if err != nil || len(causes) < letters.MaxListed {
			return err
		}
	}
}

// standingFor looks at one cause. It reports whether the policy can start nothing more now.
func (r *rounds) standingFor(ctx context.Context, p *Policy, cause string) (over bool, err error) {
	if !r.dueNow(p.Name+" "+cause, causePolls) {
		return false, nil
	}
	c, request := r.all, p.request(cause)
	if fresh, err := c.fresh(ctx, &request); err != nil || !fresh {
		return false, err
	}
	id, last, over, err := c.decide(ctx, p, cause, &request)
	if err != nil || over || id == "" {
		return over, err
	}
	logging.PolicyStarted.Write(c.config.Logger, nil, logging.Fields{logging.Policy: p.Name, logging.Campaign: id,
		logging.CauseHash: cause})
	return false, c.selectLetters(ctx, id, &request, 0, last)
}

// fresh reports whether a campaign of a policy would have a letter.
func (c *Campaigns) fresh(ctx context.Context, r *Request) (is bool, err error) {
	last, err := c.store.Inside().LastSeq(ctx)
	if err != nil {
		return false, err
	}
	err = c.heads().pages(ctx, r, 0, last, func(found []letters.Head, _ int64) (bool, error) {
		back, err := c.cameBack(ctx, nil, r, found)
		if err != nil {
			return false, err
		}
		var seqs []int64
		for _, l := range found {
			if _, why := c.takes(r, l.Status, l.Topic); why == "" && !back[l.Seq] {
				seqs = append(seqs, l.Seq)
			}
		}
		held, err := c.holding(ctx, seqs)
		is = len(seqs) > len(held)
		return !is, err
	})
	return is, err
}
