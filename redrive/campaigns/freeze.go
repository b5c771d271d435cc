package campaigns

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/inside"
)

func (in *inner) Policies(ctx context.Context) (all inside.Policies, err error) {
	c := (*Campaigns)(in)
	if err := c.usable(ctx); err != nil {
		return all, err
	}
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

func (in *inner) FreezePolicies(ctx context.Context, name string, frozen bool, by, why,
	id string) (changed bool, err error) {
	c, act := (*Campaigns)(in), Act{By: by, Reason: why, Key: id}
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

func (in *inner) ReleaseCause(ctx context.Context, name, cause, by, why, id string) (changed bool, err error) {
	c, act := (*Campaigns)(in), Act{By: by, Reason: why, Key: id}
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
	err := c.within(ctx, tx, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, `SELECT id FROM spillway_campaigns WHERE `+of+` AND state IN ('running', 'canary', 'scheduled') ORDER BY id`,
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
