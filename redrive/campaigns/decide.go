package campaigns

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/inside"
)

const (
	// perDay is the time in which a policy starts at most Policy.PerDay campaigns.
	perDay = 24 * time.Hour
	// remembered is for how long a redrive whose letters failed again blocks their cause.
	remembered = 30 * 24 * time.Hour
)

// decide starts a campaign of a policy for a cause, or does not. All workers of the service decide one after the other,
// and the decision is the row of the campaign: a worker that is killed has decided, and another one selects the
// letters, or it has not. over says that the policy starts nothing at all now.
func (c *Campaigns) decide(ctx context.Context, p *Policy, cause string,
	r *Request) (id string, last int64, over bool, err error) {
	of, err := c.stops(ctx, p.Name, cause)
	if err != nil || of.frozen || of.blocked {
		return "", 0, of.frozen, err
	}
	since := time.UnixMicro(max(of.releasedAt, of.now-remembered.Microseconds()))
	redriven, err := c.store.Inside().Redriven(ctx, cause, since)
	if err != nil {
		return "", 0, false, err
	}
	for by, outcome := range redriven {
		if tooMany(outcome, p.StopAt) {
			return "", 0, false, c.block(ctx, p.Name, cause, of.releasedAt, failedAgain(by, outcome))
		}
	}
	request, err := r.encoded()
	if err == nil {
		last, err = c.store.Inside().LastSeq(ctx)
	}
	if err != nil {
		return "", 0, false, err
	}
	why := ""
	err = c.write(ctx, func(tx *sql.Tx) error {
		id, over, why = "", false, ""
		now, err := c.lockStops(ctx, tx, p.Name, cause)
		if err != nil {
			return err
		}
		if over = now.frozen || !p.quiet.Until(time.UnixMicro(now.now)).IsZero(); over || now.blocked ||
			now.releasedAt != of.releasedAt {
			return nil
		}
		var may bool
		if may, over, why, err = c.room(ctx, tx, p, cause, now); err != nil || !may {
			return err
		}
		id = watermill.NewUUID()
		return c.begin(ctx, tx, id, r, request, cause, last)
	})
	if err == nil && why != "" {
		err = c.block(ctx, p.Name, cause, of.releasedAt, why)
	}
	if err != nil {
		return "", 0, false, fmt.Errorf("campaigns: decide for the policy %q: %w", p.Name, err)
	}
	return id, last, over, nil
}

// room reports whether the campaigns that a policy started leave room for another one, or why the cause is to be
// blocked. It is called while the others wait.
func (c *Campaigns) room(ctx context.Context, tx *sql.Tx, p *Policy, cause string,
	now stops) (may, over bool, why string, err error) {
	today := 0
	err = c.within(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&today) },
		`SELECT COUNT(*) FROM spillway_campaigns WHERE service = ? AND policy = ? AND created_at > ?`, c.service(),
		c.db.Text(p.Name),
		now.now-perDay.Microseconds())
	if err != nil || today >= p.PerDay {
		return false, true, "", err
	}
	may = true
	err = c.within(ctx, tx, func(rows *sql.Rows) error {
		var l latest
		err := rows.Scan(&l.id, &l.state, &l.created, &l.ended, &l.selected, &l.redriven, &l.heard)
		may, why = l.leaves(now, p.Window)
		return err
	}, `SELECT id, state, created_at, ended_at, selected, redriven, succeeded + failed_again FROM spillway_campaigns
WHERE service = ? AND policy = ? AND cause = ? ORDER BY created_at DESC, id LIMIT 1`, c.service(), c.db.Text(p.Name), c.db.Text(cause))
	return may, false, why, err
}

// latest is the latest campaign of a policy for a cause.
type latest struct {
	id, state                 string
	created, ended            int64
	selected, redriven, heard int
}

// leaves reports whether it leaves room for another one, or why the cause is to be blocked.
func (l *latest) leaves(now stops, window time.Duration) (may bool, why string) {
	switch {
	case !State(l.state).Ended() || l.created > now.now-window.Microseconds():
		return false, ""
	case l.created <= now.releasedAt:
		return true, ""
	case State(l.state) == Cancelled && l.selected > 0:
		return false, "the campaign " + l.id + " was cancelled"
	case l.redriven > l.heard && l.ended < now.now-listenFor.Microseconds():
		return false, fmt.Sprintf("of the campaign %s, %d of %d letters were not heard of", l.id, l.redriven-l.heard,
			l.redriven)
	}
	return l.redriven <= l.heard, ""
}

// tooMany reports whether too many letters of a redrive failed again.
func tooMany(o inside.Outcome, stopAt float64) bool {
	return float64(o.FailedAgain) > stopAt*float64(o.Redriven+o.Succeeded+o.FailedAgain)
}

func failedAgain(by string, o inside.Outcome) string {
	return fmt.Sprintf("of the redrive %s, %d of %d letters failed again", logged(by), o.FailedAgain,
		o.Redriven+o.Succeeded+o.FailedAgain)
}
