package campaigns

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/inside"
)

// Forget takes a person's values from what the campaigns keep: from the requests of campaigns (IDs, metadata,
// description and payload of their filters, their edits and reasons), from reasons and details of their events, and
// from reasons of freezes.
// The word erased takes their place. A value of fewer than 4 bytes is replaced only if it is all of a text. What
// the campaigns did, and their counts, stay. With a dry run nothing is changed.
func (in *inner) Forget(ctx context.Context, dryRun bool, values ...string) (done inside.Forgotten, err error) {
	c := (*Campaigns)(in)
	if err := c.usable(ctx); err != nil {
		return done, err
	}
	for after := ""; err == nil; {
		var some []kept
		if some, err = c.kept(ctx, after); err != nil || len(some) == 0 {
			break
		}
		for _, k := range some {
			if after = k.id; err == nil {
				err = c.forget(ctx, k, values, dryRun, &done)
			}
		}
	}
	if err == nil {
		err = c.forgetStops(ctx, values, dryRun, &done)
	}
	if err != nil {
		err = fmt.Errorf("campaigns: forget, after %d texts: %w", done.Texts, err)
	}
	return done, err
}

// kept are the texts of a campaign.
type kept struct {
	id, request, why string
	state            State
}

func (c *Campaigns) kept(ctx context.Context, after string) (some []kept, err error) {
	err = c.query(ctx, func() { some = nil }, func(rows *sql.Rows) error {
		var k kept
		var state string
		err := rows.Scan(&k.id, &state, &k.request, &k.why)
		k.state = State(state)
		some = append(some, k)
		return err
	}, `SELECT id, state, request, why FROM spillway_campaigns WHERE service = ? AND id > ? ORDER BY id LIMIT 100`,
		c.service(), c.db.Text(after))
	return some, err
}

// maxForget is how often the texts of a campaign are read again that changed between reading and writing.
const maxForget = 20

func (c *Campaigns) forget(ctx context.Context, k kept, values []string, dryRun bool, done *inside.Forgotten) error {
	for again := maxForget; ; again-- {
		request, inEdit, err := forgetRequest(k.request, values)
		if err != nil {
			return err
		}
		why := boundedtext.Erased(k.why, values)
		open := request != k.request && (k.state == Selecting || inEdit && !k.state.Ended())
		if open {
			request = k.request
		}
		written := 0
		if request != k.request || why != k.why {
			written++
		}
		if written > 0 && !dryRun {
			if written, err = c.rewrite(ctx, k, request, why); err != nil {
				return err
			}
			if written == 0 && again > 0 { // it moved on, or another Forget wrote it meanwhile
				if k, err = c.keptOf(ctx, k); err != nil {
					return err
				}
				continue
			}
			open = open || written == 0
		}
		if open {
			done.Open = append(done.Open, k.id)
		}
		done.Texts += written
		return c.forgetEvents(ctx, k.id, values, dryRun, done)
	}
}

// rewrite writes the texts of a campaign that are as they were read, and returns 0 for others.
func (c *Campaigns) rewrite(ctx context.Context, was kept, request, why string) (n int, err error) {
	err = c.write(ctx, func(tx *sql.Tx) (err error) {
		n, err = c.exec(ctx, tx, `UPDATE spillway_campaigns SET request = ?, why = ? WHERE id = ? AND state = ? AND request = ? AND why = ?`, c.db.Text(request), c.db.Text(why),
			c.db.Text(was.id), c.db.Text(string(was.state)), c.db.Text(was.request), c.db.Text(was.why))
		return err
	})
	return n, err
}

// keptOf reads the texts of a campaign again.
func (c *Campaigns) keptOf(ctx context.Context, k kept) (kept, error) {
	err := c.query(ctx, func() {}, func(rows *sql.Rows) error {
		var state string
		err := rows.Scan(&state, &k.request, &k.why)
		k.state = State(state)
		return err
	}, `SELECT state, request, why FROM spillway_campaigns WHERE id = ?`, c.db.Text(k.id))
	return k, err
}

// forgetEvents takes values from the events of a campaign. Events that another Forget wrote meanwhile are read again.
func (c *Campaigns) forgetEvents(ctx context.Context, id string, values []string, dryRun bool,
	done *inside.Forgotten) error {
	for again := maxForget; ; again-- {
		events, err := c.saying(ctx, id, values)
		if dryRun {
			done.Texts += len(events)
		}
		if err != nil || len(events) == 0 || dryRun {
			return err
		}
		written := 0
		err = c.write(ctx, func(tx *sql.Tx) error {
			written = 0
			for _, e := range events {
				n, err := c.exec(ctx, tx,
					`UPDATE spillway_campaign_events SET reason = ?, details = ? WHERE seq = ? AND reason = ? AND details = ?`,
					c.db.Text(boundedtext.Erased(e.Reason, values)), c.db.Text(boundedtext.Erased(e.Details, values)), e.Seq,
					c.db.Text(e.Reason), c.db.Text(e.Details))
				if err != nil {
					return err
				}
				written += n
			}
			return nil
		})
		if err != nil {
			return err
		}
		if done.Texts += written; written == len(events) {
			return nil
		}
		if again == 0 {
			done.Open = append(done.Open, id)
			return nil
		}
	}
}

// saying returns the events of a campaign whose texts have one of the values.
func (c *Campaigns) saying(ctx context.Context, id string, values []string) (found []inside.CampaignEvent, err error) {
	for after := int64(0); ; {
		events, err := (*inner)(c).History(ctx, id, after)
		if err != nil || len(events) == 0 {
			return found, err
		}
		for _, e := range events {
			if after = e.Seq; boundedtext.Erased(e.Reason, values) != e.Reason ||
				boundedtext.Erased(e.Details, values) != e.Details {
				found = append(found, e)
			}
		}
	}
}

// ForgetLetters takes the texts that the campaigns keep of letters: why a letter was refused, which can quote its
// payload. It takes at most 500 letters, and returns how many texts there were.
func (in *inner) ForgetLetters(ctx context.Context, seqs ...int64) (n int, err error) {
	c := (*Campaigns)(in)
	if err := c.usable(ctx); err != nil {
		return 0, err
	}
	if len(seqs) == 0 {
		return 0, nil
	}
	if len(seqs) > settledAtOnce {
		return 0, fmt.Errorf("campaigns: forget %d letters: at most %d are possible: use several calls", len(seqs),
			settledAtOnce)
	}
	letters := make([]any, len(seqs))
	for i, seq := range seqs {
		letters[i] = seq
	}
	for after := ""; ; {
		some, err := c.kept(ctx, after)
		if err == nil && len(some) > 0 {
			after = some[len(some)-1].id
			ids := make([]any, len(some))
			for i, k := range some {
				ids[i] = c.db.Text(k.id)
			}
			err = c.write(ctx, func(tx *sql.Tx) error {
				changed, err := c.exec(ctx, tx,
					`UPDATE spillway_campaign_letters SET why = '`+boundedtext.ErasedWord+`' WHERE campaign IN (`+marks(len(ids))+
						`) AND seq IN (`+marks(len(letters))+
						`) AND why <> '' AND why <> '`+boundedtext.ErasedWord+`'`, append(ids, letters...)...)
				n += changed
				return err
			})
		}
		if err != nil {
			return n, fmt.Errorf("campaigns: forget %d letters: %w", len(seqs), err)
		}
		if len(some) == 0 {
			return n, nil
		}
	}
}

// forgetRequest returns a request without the values, and whether the edit had some of them.
func forgetRequest(text string, values []string) (request string, inEdit bool, err error) {
	r, err := decoded(text)
	if err != nil {
		return "", false, err
	}
	before, err := json.Marshal(r)
	if err != nil {
		return "", false, err
	}
	f := &r.Filter
	for i := range f.IDs {
		f.IDs[i] = boundedtext.Erased(f.IDs[i], values)
	}
	for key, value := range f.Metadata {
		f.Metadata[key] = boundedtext.Erased(value, values)
	}
	f.Description, f.Payload = boundedtext.Erased(f.Description, values), boundedtext.Erased(f.Payload, values)
	r.Reason = boundedtext.Erased(r.Reason, values)
	if e := r.Edit; e != nil {
		was := inside.EditText(e)
		for key, value := range e.Set {
			e.Set[key] = boundedtext.Erased(value, values)
		}
		if e.Payload != nil {
			text := forgetPayload(*e.Payload, values)
			e.Payload = &text
		}
		if e.Merge, err = forgetJSON(e.Merge, values); err == nil {
			e.Patch, err = forgetJSON(e.Patch, values)
		}
		if err != nil {
			return "", false, err
		}
		inEdit = inside.EditText(e) != was
	}
	after, err := json.Marshal(r)
	if err != nil || bytes.Equal(before, after) {
		return text, false, err
	}
	return string(after), inEdit, nil
}

// forgetPayload takes values from a payload: from JSON by its texts and numbers.
func forgetPayload(payload string, values []string) string {
	if json.Valid([]byte(payload)) {
		if text, err := forgetJSON(json.RawMessage(payload), values); err == nil {
			payload = string(text)
		}
	}
	return boundedtext.Erased(payload, values)
}

// forgetJSON takes values from the texts and numbers of a JSON text. Without such a value the text stays as it is.
func forgetJSON(text json.RawMessage, values []string) (json.RawMessage, error) {
	if len(text) == 0 {
		return text, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("read an edit: %w", err)
	}
	changed := false
	value = forgetValue(value, values, &changed)
	if !changed {
		return text, nil
	}
	return json.Marshal(value)
}

func forgetValue(value any, values []string, changed *bool) any {
	switch v := value.(type) {
	case string:
		is := boundedtext.Erased(v, values)
		*changed = *changed || is != v
		return is
	case json.Number:
		if boundedtext.Erased(v.String(), values) == boundedtext.ErasedWord {
			*changed = true
			return boundedtext.ErasedWord
		}
	case []any:
		for i := range v {
			v[i] = forgetValue(v[i], values, changed)
		}
	case map[string]any:
		for key := range v {
			v[key] = forgetValue(v[key], values, changed)
		}
	}
	return value
}

// Purge deletes which letters the campaigns had that ended before a time, in small transactions, and returns how many
// rows it deleted. The campaigns, their counts and their History stay, and so do the letters and their events. For each
// campaign it records act in its History. It can be called again after an error.
func (c *Campaigns) Purge(ctx context.Context, before time.Time, act Act) (rows int, err error) {
	if err := c.usable(ctx); err != nil {
		return 0, err
	}
	if err := act.validate(); err != nil {
		return 0, wrong{err}
	}
	if before.IsZero() {
		return 0, errors.New("campaigns: purge: the time is zero: say before when a campaign must have ended")
	}
	for {
		var ids []string
		err := c.query(ctx, func() { ids = nil }, func(found *sql.Rows) error {
			var id string
			err := found.Scan(&id)
			ids = append(ids, id)
			return err
		}, `SELECT id FROM spillway_campaigns WHERE service = ? AND (state = 'finished' OR state = 'cancelled' AND swept = 1) AND ended_at < ?
AND EXISTS (SELECT 1 FROM spillway_campaign_letters WHERE campaign = id) ORDER BY created_at, id LIMIT 100`, c.service(), before.UnixMicro())
		for _, id := range ids {
			if err == nil {
				err = c.purge(ctx, id, act, &rows)
			}
		}
		if err != nil {
			return rows, fmt.Errorf("campaigns: purge: %w", err)
		}
		if len(ids) == 0 {
			return rows, nil
		}
	}
}

// purge deletes the rows of one campaign. The last transaction records it.
func (c *Campaigns) purge(ctx context.Context, id string, act Act, deleted *int) error {
	for n, all := 0, 0; ; {
		err := c.write(ctx, func(tx *sql.Tx) error {
			n = 0
			last := int64(0)
			err := c.within(ctx, tx, func(rows *sql.Rows) error { n++; return rows.Scan(&last) },
				`SELECT seq FROM spillway_campaign_letters WHERE campaign = ? ORDER BY seq LIMIT ?`, c.db.Text(id), sweepAtOnce)
			if err == nil && n > 0 {
				_, err = c.exec(ctx, tx, `DELETE FROM spillway_campaign_letters WHERE campaign = ? AND seq <= ?`, c.db.Text(id),
					last)
			}
			if err == nil && n < sweepAtOnce {
				err = c.record(ctx, tx, id, inside.CampaignPurged, act, fmt.Sprintf("%d letters", all+n))
			}
			return err
		})
		if err != nil {
			return err
		}
		*deleted, all = *deleted+n, all+n
		if n < sweepAtOnce {
			return nil
		}
	}
}
