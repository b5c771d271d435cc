package campaigns

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/inside"
)

// todo are the campaigns that a worker looks at. Those that ended long ago, or of which all is known, are not among
// them.
func (r *rounds) todo(ctx context.Context) ([]Campaign, error) {
	return r.all.list(ctx, ` WHERE service = ? AND (state IN ('running', 'canary', 'paused')
	OR state = 'selecting' AND leased_until <= now_us()
	OR state = 'scheduled' AND not_before <= now_us()
	OR state IN ('finished', 'cancelled') AND redriven > succeeded + failed_again AND ended_at > now_us() - ?)
ORDER BY created_at, id LIMIT 1000`, r.all.service(), listenFor.Microseconds())
}

// goOn ends a selection that stands still: the process that began it is gone.
func (r *rounds) goOn(ctx context.Context, c Campaign) error {
	var after, last int64
	err := r.all.query(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&after, &last) },
		`SELECT select_after, max_seq FROM spillway_campaigns WHERE id = ?`, r.all.db.Text(c.ID))
	if err != nil {
		return err
	}
	return r.all.selectLetters(ctx, c.ID, &c.Request, after, last)
}

// wake lets a campaign run whose time has come.
func (r *rounds) wake(ctx context.Context, c Campaign) error {
	return r.all.write(ctx, func(tx *sql.Tx) (err error) {
		if c.State == Paused {
			_, err = r.all.resume(ctx, tx, c.ID, Act{By: ByItself, Reason: "the time that it was to wait is over"}, "",
				` AND resume_at > 0 AND resume_at <= now_us()`)
			return err
		}
		_, err = r.all.step(ctx, tx, c.ID,
			move{from: []State{Scheduled}, to: Running, what: inside.CampaignRan,
				act:  Act{By: ByItself, Reason: "Request.NotBefore is over"},
				set:  `started_at = ` + startedAt(Running) + `, next_due = now_us(), late = 0,`,
				only: ` AND not_before <= now_us()`})
		return err
	})
}

// holdForApproval takes back a campaign that a program without Config.ApproveOver started.
func (r *rounds) holdForApproval(ctx context.Context, c Campaign) (held bool, err error) {
	over := r.all.config.ApproveOver
	if over == 0 || c.Selected <= over || c.ApprovedBy != "" {
		return false, nil
	}
	err = r.all.write(ctx, func(tx *sql.Tx) error {
		held, err = r.all.step(ctx, tx, c.ID, move{from: []State{Running}, to: Approval, what: inside.CampaignHeld,
			act:  Act{By: ByItself, Reason: fmt.Sprintf("it has %d letters, and more than %d need approval", c.Selected, over)},
			only: ` AND approved_by = ''`})
		return err
	})
	return true, err
}
