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
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Forget takes a person's values from what the campaigns keep: from the requests of campaigns (IDs, metadata,
// description and payload of their filters, their edits and reasons), from reasons and details of their events, and
// from reasons of freezes.
// The word erased takes their place. A value of fewer than 4 bytes is replaced only if it is all of a text. What
// the campaigns did, and their counts, stay. With a dry run nothing is changed.
func (c inner) Forget(ctx context.Context, dryRun bool, values ...string) (done inside.Forgotten, err error) {
	for after := ""; err == nil; {
		var ids []string
		if ids, err = c.ids(ctx, after); err != nil || len(ids) == 0 {
			break
		}
		for _, id := range ids {
			if after = id; err == nil {
				err = c.forget(ctx, id, values, dryRun, &done)
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

// ids are those of campaigns, in their order, at most 100.
func (c *Campaigns) ids(ctx context.Context, after string) (ids []string, err error) {
	err = c.query(ctx, func() { ids = nil }, database.Into(&ids), `SELECT id FROM spillway_campaigns WHERE service = ? AND id > ? ORDER BY id LIMIT 100`, c.service(), c.db.Text(after))
	return ids, err
}

// forget takes values from the texts of a campaign, which is locked meanwhile, and of its events.
func (c *Campaigns) forget(ctx context.Context, id string, values []string, dryRun bool, done *inside.Forgotten) error {
	texts, open := 0, false
	err := c.write(ctx, func(tx *sql.Tx) error {
		var state, request, why string
		err := c.within(ctx, tx, func(rows *sql.Rows) error { return rows.Scan(&state, &request, &why) },
			`SELECT state, request, why FROM spillway_campaigns WHERE id = ?`+c.lock(), c.db.Text(id))
		if err != nil {
			return err
		}
		is, inEdit, err := forgetRequest(request, values)
		if err != nil {
			return err
		}
		texts, open = 0, is != request && (State(state) == Selecting || inEdit && !State(state).Ended())
		if open {
			is = request
		}
		if because := boundedtext.Erased(why, values); is != request || because != why {
			texts++
			if !dryRun {
				_, err = c.exec(ctx, tx, `UPDATE spillway_campaigns SET request = ?, why = ? WHERE id = ?`, c.db.Text(is),
					c.db.Text(because), c.db.Text(id))
			}
		}
		var events []inside.CampaignEvent
		if err == nil {
			err = c.within(ctx, tx, func(rows *sql.Rows) error {
				var was inside.CampaignEvent
				err := rows.Scan(&was.Seq, &was.Reason, &was.Details)
				is := was
				is.Reason, is.Details = boundedtext.Erased(was.Reason, values), boundedtext.Erased(was.Details, values)
				if is != was {
					events = append(events, is)
				}
				return err
			}, `SELECT seq, reason, details FROM spillway_campaign_events WHERE campaign = ? ORDER BY seq`, c.db.Text(id))
		}
		for _, e := range events {
			if texts++; err == nil && !dryRun {
				_, err = c.exec(ctx, tx, `UPDATE spillway_campaign_events SET reason = ?, details = ? WHERE seq = ?`,
					c.db.Text(e.Reason), c.db.Text(e.Details), e.Seq)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if done.Texts += texts; open {
		done.Open = append(done.Open, id)
	}
	return nil
}

// ForgetLetters takes the texts that the campaigns keep of letters: why a letter was refused, which can quote its
// payload. It returns how many texts there were.
func (c inner) ForgetLetters(ctx context.Context, seqs ...int64) (n int, err error) {
	if len(seqs) == 0 {
		return 0, nil
	}
	among, letters := c.db.Among("seq", seqs)
	for after := ""; ; {
		some, err := c.ids(ctx, after)
		if err == nil && len(some) > 0 {
			after = some[len(some)-1]
			ids := make([]any, len(some))
			for i, id := range some {
				ids[i] = c.db.Text(id)
			}
			err = c.write(ctx, func(tx *sql.Tx) error {
				changed, err := c.exec(ctx, tx,
					`UPDATE spillway_campaign_letters SET why = '`+boundedtext.ErasedWord+`' WHERE campaign IN (`+marks(len(ids))+
						`) AND `+among+` AND why <> '' AND why <> '`+boundedtext.ErasedWord+`'`, append(ids, letters...)...)
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
		if was := string(e.PayloadBytes); boundedtext.Erased(was, values) != was { // without it they have no format any more
			e.PayloadBytes = []byte(boundedtext.ErasedWord)
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
		err := c.query(ctx, func() { ids = nil }, database.Into(&ids), `SELECT id FROM spillway_campaigns WHERE service = ? AND (state = 'finished' OR state = 'cancelled' AND swept = 1) AND ended_at < ?
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
