package campaigns

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// stops is what keeps a policy from a cause, by the database's clock, in microseconds.
type stops struct {
	now, releasedAt int64 // releasedAt is 0 if no person released the cause
	frozen, blocked bool
}

const stopsQuery = `SELECT cause, stopped, changed_at, now_us() FROM spillway_policies
WHERE service = ? AND (name = '' OR name = ? AND cause IN ('', ?))`

func (s *stops) scan(rows *sql.Rows) error {
	var cause string
	var stopped, changed int64
	err := rows.Scan(&cause, &stopped, &changed, &s.now)
	switch {
	case cause == "":
		s.frozen = s.frozen || stopped > 0
	case stopped > 0:
		s.blocked = true
	default:
		s.releasedAt = changed
	}
	return err
}

func (c *Campaigns) stops(ctx context.Context, policy, cause string) (s stops, err error) {
	err = c.query(ctx, func() { s = stops{} }, s.scan, stopsQuery, c.service(), c.db.Text(policy), c.db.Text(cause))
	return s, err
}

// lockStops is stops while all other decisions, freezes and releases of the service wait for this transaction.
func (c *Campaigns) lockStops(ctx context.Context, tx *sql.Tx, policy, cause string) (s stops, err error) {
	if err := c.lockPolicies(ctx, tx); err != nil {
		return s, err
	}
	err = c.within(ctx, tx, s.scan, stopsQuery, c.service(), c.db.Text(policy), c.db.Text(cause))
	return s, err
}

func (c *Campaigns) lockPolicies(ctx context.Context, tx *sql.Tx) error {
	if err := c.row(ctx, tx, "", ""); err != nil {
		return err
	}
	_, err := c.exec(ctx, tx, `UPDATE spillway_policies SET version = version + 1 WHERE service = ? AND name = '' AND cause = ''`, c.service())
	return err
}

// row makes a row that is not there.
func (c *Campaigns) row(ctx context.Context, tx *sql.Tx, name, cause string) error {
	statement, conflict := `INSERT INTO`, ` ON CONFLICT (service, name, cause) DO NOTHING`
	if c.db.Kind() == database.MySQL {
		statement, conflict = `INSERT IGNORE INTO`, ``
	}
	_, err := c.exec(ctx, tx, statement+` spillway_policies (service, name, cause) VALUES (?, ?, ?)`+conflict, c.service(),
		c.db.Text(name), c.db.Text(cause))
	return err
}

// register writes down which policies there are.
func (c *Campaigns) register(ctx context.Context) error {
	if len(c.config.Policies) == 0 {
		return nil
	}
	return c.write(ctx, func(tx *sql.Tx) error {
		err := c.lockPolicies(ctx, tx)
		for i := range c.config.Policies {
			p := &c.config.Policies[i]
			if err == nil {
				err = c.row(ctx, tx, p.Name, "")
			}
			if err == nil {
				_, err = c.exec(ctx, tx, `UPDATE spillway_policies SET rule = ?, seen_at = now_us() WHERE service = ? AND name = ? AND cause = ''`,
					c.db.Text(p.rule()), c.service(), c.db.Text(p.Name))
			}
		}
		return err
	})
}

// seen notes that a worker has a policy, once a minute.
func (c *Campaigns) seen(ctx context.Context, policy string) error {
	_, err := c.db.Exec(ctx, c.db.Statement(`UPDATE spillway_policies SET seen_at = now_us()
WHERE service = ? AND name = ? AND cause = '' AND seen_at < now_us() - ?`), c.service(), c.db.Text(policy), time.Minute.Microseconds())
	return err
}

// blockFailed blocks the cause of a policy's campaign of which too many letters failed again, also after its end.
func (c *Campaigns) blockFailed(ctx context.Context, of Campaign, heard inside.Outcome) error {
	if heard.Redriven = max(heard.Redriven, of.Redriven-heard.Succeeded-heard.FailedAgain); of.Policy == "" ||
		heard.FailedAgain == of.FailedAgain || !tooMany(heard, of.Request.StopAt) {
		return nil
	}
	cause := of.Request.Filter.Causes[0]
	now, err := c.stops(ctx, of.Policy, cause)
	if err != nil || now.blocked || of.CreatedAt.UnixMicro() <= now.releasedAt { // it was released since
		return err
	}
	return c.block(ctx, of.Policy, cause, now.releasedAt, failedAgain(of.ID, heard))
}

// block keeps a policy from a cause until a person releases it, unless one did so since released.
func (c *Campaigns) block(ctx context.Context, policy, cause string, released int64, why string) error {
	blocked := false
	err := c.write(ctx, func(tx *sql.Tx) error {
		blocked = false
		now, err := c.lockStops(ctx, tx, policy, cause)
		if err != nil || now.blocked || now.releasedAt != released {
			return err
		}
		blocked = true
		if err := c.row(ctx, tx, policy, cause); err != nil {
			return err
		}
		return c.stop(ctx, tx, policy, cause, true, Act{By: ByItself, Reason: why})
	})
	if err != nil {
		return fmt.Errorf("campaigns: block the cause %s for the policy %q: %w", cause, policy, err)
	}
	if blocked {
		eventPolicyBlocked.Write(c.config.Logger, nil, logging.Fields{logging.Policy: policy, logging.CauseHash: cause,
			logging.Reason: why})
	}
	return nil
}

// stop freezes, thaws, blocks or releases, on record.
func (c *Campaigns) stop(ctx context.Context, tx *sql.Tx, policy, cause string, stopped bool, act Act) error {
	is := map[bool]int{true: 1}[stopped]
	_, err := c.exec(ctx, tx, `UPDATE spillway_policies SET version = version + 1, stopped = ?, changed_at = now_us(), changed_by = ?,
	changed_why = ? WHERE service = ? AND name = ? AND cause = ?`, is, c.db.Text(act.By), c.db.Text(act.Reason), c.service(),
		c.db.Text(policy), c.db.Text(cause))
	if err != nil {
		return err
	}
	what, of := map[bool]string{true: "frozen", false: "thawed"}[stopped], "all policies"
	if policy != "" {
		of = "the policy " + policy
	}
	if cause != "" {
		what = map[bool]string{true: "blocked", false: "released"}[stopped]
		of += ", cause " + cause
	}
	return hidden.Of(c.store).RecordPolicy(ctx, tx, letters.Act{By: act.By, Reason: act.Reason, RedriveID: act.Key,
		Detail: what + ": " + of})
}

// holdPolicy pauses a campaign of a policy that is frozen, or whose hours are quiet.
func (r *rounds) holdPolicy(ctx context.Context, of Campaign) (held bool, err error) {
	now, err := r.all.stops(ctx, of.Policy, "")
	if err != nil {
		return false, err
	}
	set, args, why := "", []any(nil), "the policy is frozen"
	if !now.frozen {
		var until time.Time
		for _, p := range r.all.config.Policies {
			if p.Name == of.Policy && now.now > 0 {
				until = p.quiet.until(time.UnixMicro(now.now))
			}
		}
		if until.IsZero() {
			return false, nil
		}
		set, args, why = "resume_at = ?,", []any{until.UnixMicro()}, "the quiet hours of the policy"
	}
	err = r.all.write(ctx, func(tx *sql.Tx) error {
		_, err := r.all.pause(ctx, tx, of.ID, Act{By: ByItself, Reason: why}, set, args...)
		return err
	})
	return true, err
}

// forgetStops takes values from the reasons of freezes and blocks. A reason that another one takes the place of
// meanwhile says nothing any more.
func (c *Campaigns) forgetStops(ctx context.Context, values []string, dryRun bool, done *inside.Forgotten) error {
	var said []string
	err := c.query(ctx, func() { said = nil }, func(rows *sql.Rows) error {
		var why string
		err := rows.Scan(&why)
		if boundedtext.Erased(why, values) != why {
			said = append(said, why)
		}
		return err
	}, `SELECT changed_why FROM spillway_policies WHERE service = ?`, c.service())
	if done.Texts += len(said); err != nil || dryRun {
		return err
	}
	return c.write(ctx, func(tx *sql.Tx) (err error) {
		for _, why := range said {
			if err == nil {
				_, err = c.exec(ctx, tx, `UPDATE spillway_policies SET changed_why = ? WHERE service = ? AND changed_why = ?`,
					c.db.Text(boundedtext.Erased(why, values)), c.service(), c.db.Text(why))
			}
		}
		return err
	})
}

// Policies returns the standing policies of the service.
func (c inner) Policies(ctx context.Context) (all inside.Policies, err error) {
	at := make(map[string]int)
	err = c.query(ctx, func() { all, at = inside.Policies{}, make(map[string]int) }, func(rows *sql.Rows) error {
		var name, cause, rule, by, why string
		var seen, stopped, changed int64
		if err := rows.Scan(&name, &cause, &rule, &seen, &stopped, &changed, &by, &why); err != nil {
			return err
		}
		stop := inside.Stop{Cause: cause, At: fromMicro(changed), By: by, Reason: why}
		switch i, known := at[name]; {
		case name != "" && cause == "":
			at[name] = len(all.Policies)
			p := inside.Policy{Name: name, Rule: rule, SeenAt: fromMicro(seen)}
			if stopped > 0 {
				p.Frozen = &stop
			}
			all.Policies = append(all.Policies, p)
		case stopped == 0:
		case name == "":
			all.Frozen = &stop
		case known:
			all.Policies[i].Blocked = append(all.Policies[i].Blocked, stop)
		}
		return nil
	}, `SELECT name, cause, rule, seen_at, stopped, changed_at, changed_by, changed_why FROM spillway_policies WHERE service = ?
ORDER BY name, cause`, c.service())
	if err == nil && len(all.Policies) > 0 {
		err = c.query(ctx, func() {}, func(rows *sql.Rows) error {
			var name string
			var n int
			err := rows.Scan(&name, &n)
			if i, known := at[name]; known {
				all.Policies[i].Today = n
			}
			return err
		}, `SELECT policy, COUNT(*) FROM spillway_campaigns WHERE service = ? AND policy <> '' AND created_at > now_us() - ? GROUP BY policy`,
			c.service(), perDay.Microseconds())
	}
	if err != nil {
		return inside.Policies{}, fmt.Errorf("campaigns: list the policies: %w", err)
	}
	return all, nil
}

// FreezePolicies freezes or thaws a policy, or all if name is empty. A freeze pauses the campaigns that run, and
// from then on no instance starts one. A thaw resumes none. It reports false if there was nothing to change. The
// record has it under an id, if there is one.
func (c inner) FreezePolicies(ctx context.Context, name string, frozen bool, by, why,
	id string) (changed bool, err error) {
	act := Act{By: by, Reason: why, Key: id}
	return c.change(ctx, name, "", act, func(ctx context.Context, tx *sql.Tx, is bool) (bool, error) {
		if is == frozen {
			return false, nil
		}
		if err := c.stop(ctx, tx, name, "", frozen, act); err != nil || !frozen {
			return true, err
		}
		return true, c.pauseAll(ctx, tx, name, Act{By: by, Reason: why})
	})
}

// ReleaseCause lets a policy take letters of a cause again that was blocked for it.
func (c inner) ReleaseCause(ctx context.Context, name, cause, by, why, id string) (changed bool, err error) {
	act := Act{By: by, Reason: why, Key: id}
	return c.change(ctx, name, cause, act, func(ctx context.Context, tx *sql.Tx, is bool) (bool, error) {
		if !is {
			return false, nil
		}
		return true, c.stop(ctx, tx, name, cause, false, act)
	})
}

// change is one call of a person about a policy: work gets whether it is stopped.
func (c *Campaigns) change(ctx context.Context, name, cause string, act Act,
	work func(ctx context.Context, tx *sql.Tx, stopped bool) (bool, error)) (changed bool, err error) {
	if err := c.usable(ctx); err != nil {
		return false, err
	}
	if err := act.validate(); err != nil {
		return false, wrong{err}
	}
	err = c.write(ctx, func(tx *sql.Tx) error {
		if err := c.lockPolicies(ctx, tx); err != nil {
			return err
		}
		known, stopped := false, int64(0)
		err := c.within(ctx, tx, func(rows *sql.Rows) error { known = true; return rows.Scan(&stopped) },
			`SELECT stopped FROM spillway_policies WHERE service = ? AND name = ? AND cause = ?`, c.service(),
			c.db.Text(checkedID(name)),
			c.db.Text(checkedID(cause)))
		if err == nil && !known {
			err = inside.ErrNoPolicy
		}
		if err != nil {
			return err
		}
		changed, err = work(ctx, tx, stopped > 0)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("campaigns: the policy %q: %w", checkedID(name), err)
	}
	return changed, nil
}

// pauseAll pauses the campaigns of a policy, or of all, for good. What is not selected or approved yet is paused before
// its first letter.
func (c *Campaigns) pauseAll(ctx context.Context, tx *sql.Tx, name string, act Act) error {
	of, args := `service = ? AND policy <> '' AND (policy = ? OR ? = '')`,
		[]any{c.service(), c.db.Text(name), c.db.Text(name)}
	var ids []string
	err := c.within(ctx, tx, database.Into(&ids), `SELECT id FROM spillway_campaigns WHERE `+of+` AND state IN ('running', 'canary', 'scheduled') ORDER BY id`,
		args...)
	for _, id := range ids {
		if err == nil {
			_, err = c.pause(ctx, tx, id, act, "")
		}
	}
	if err == nil {
		_, err = c.exec(ctx, tx, `UPDATE spillway_campaigns SET resume_at = 0 WHERE `+of+` AND state = 'paused'`, args...)
	}
	return err
}
