package campaigns

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
)

// selectLease is how long a selection may stand still before a worker goes on with it.
const selectLease = 30 * time.Second

// Start begins a campaign and returns it. It writes the selection down, in small transactions: the letters that wait
// now and that no other campaign has. Workers publish nothing before that is done. Campaign.LeftOut says which letters
// were left out. A selection without a letter is ErrNoLetters, and the campaign is cancelled. If Request.ID names a
// campaign that is there, Start returns that campaign as it stands.
//
// If ctx ends or the database fails meanwhile, Start returns the error and the campaign as far as it is known. A worker
// goes on with its selection after 30 seconds; Cancel prevents that.
func (c *Campaigns) Start(ctx context.Context, r Request) (Campaign, error) {
	if err := c.usable(ctx); err != nil {
		return Campaign{}, err
	}
	r.setDefaults()
	if err := c.check(&r); err != nil {
		return Campaign{}, err
	}
	if err := r.Act.validate(); err != nil {
		return Campaign{}, wrong{err}
	}
	request, err := r.encoded()
	if err != nil {
		return Campaign{}, wrong{err}
	}
	if err := c.checkKeys(ctx, &r); err != nil {
		return Campaign{}, err
	}
	if r.ID != "" {
		if now, err := c.Get(ctx, r.ID); err == nil || !errors.Is(err, ErrNotFound) {
			return answer(now, err)
		}
	}
	if err := c.sweep(ctx); err != nil {
		return Campaign{}, err
	}
	last, err := hidden.Of(c.store).LastSeq(ctx)
	if err != nil {
		return Campaign{}, fmt.Errorf("campaigns: start: %w", err)
	}
	id := cmp.Or(r.ID, watermill.NewUUID())
	err = c.write(ctx, func(tx *sql.Tx) error { return c.begin(ctx, tx, id, &r, request, "", last) })
	if err != nil {
		if now, is := c.Get(ctx, id); r.ID != "" && is == nil { // the other of two was first
			return answer(now, nil)
		}
		return Campaign{}, fmt.Errorf("campaigns: start: %w", err)
	}
	selecting := c.selectLetters(ctx, id, &r, 0, last)
	now, err := c.Get(context.WithoutCancel(ctx), id)
	if selecting != nil {
		return now, fmt.Errorf("campaigns: start %q: %w", id, errors.Join(selecting, err))
	}
	return answer(now, err)
}

// begin writes a campaign down, whose letters are selected then: those up to last. cause is that of a policy.
func (c *Campaigns) begin(ctx context.Context, tx *sql.Tx, id string, r *Request, request, cause string,
	last int64) error {
	_, err := c.exec(ctx, tx, `INSERT INTO spillway_campaigns (id, service, state, request, created_at, not_before, rate, canary, max_seq,
	leased_until, policy, cause) VALUES (?, ?, 'selecting', ?, now_us(), ?, ?, ?, ?, now_us() + ?, ?, ?)`, c.db.Text(id), c.service(),
		c.db.Text(request), micro(r.NotBefore), milli(r.Rate), r.Canary, last, selectLease.Microseconds(),
		c.db.Text(r.policy),
		c.db.Text(cause))
	if err != nil {
		return err
	}
	return c.record(ctx, tx, id, inside.CampaignStarted, r.Act, "")
}

// answer is what Start returns of a campaign.
func answer(now Campaign, err error) (Campaign, error) {
	if err == nil && now.Selected == 0 && now.State != Selecting {
		err = fmt.Errorf("%w: %s", ErrNoLetters, noLetters(now.LeftOut))
	}
	return now, err
}

// check is validate, and what this program's configuration says.
func (c *Campaigns) check(r *Request) error {
	if err := r.validate(); err != nil {
		return wrong{err}
	}
	if r.To != "" && len(c.config.Allow) > 0 && !slices.Contains(c.config.Allow, r.To) {
		return wrong{fmt.Errorf("campaigns: Request.To is %q, which is not in Config.Allow: add it there, or choose "+
			"another topic", logged(r.To))}
	}
	return nil
}

// checkKeys returns an error if the handlers are to run again, and the keys that keep them from it are elsewhere.
func (c *Campaigns) checkKeys(ctx context.Context, r *Request) error {
	if !r.HandleAgain {
		return nil
	}
	if err := hidden.Of(c.store).CheckKeys(ctx); err != nil {
		return wrong{fmt.Errorf("campaigns: Request.HandleAgain is true, and the receiver's keys are not in the letters' "+
			"database: leave it out if the handlers have no receiver, or remove the keys where they are with "+
			"erasure.Erase: %w", err)}
	}
	return nil
}

// noLetters says for people why the selection has no letter.
func noLetters(out []LeftOut) string {
	if len(out) == 0 {
		return "the selection is empty"
	}
	var why []string
	for _, l := range out {
		switch l.Why {
		case NotAllowed:
			why = append(why, fmt.Sprintf("%d may not go to the topic %q, which Config.Allow does not name", l.Letters, l.Topic))
		case NoOrigin:
			why = append(why, fmt.Sprintf("of %d no origin topic is known: name one in Request.To", l.Letters))
		case InCampaign:
			why = append(why, fmt.Sprintf("the campaign %s has %d: wait for its end, or cancel it", l.Campaign, l.Letters))
		case CameBack:
			why = append(why, fmt.Sprintf("a redrive brought %d back before: a person decides", l.Letters))
		case NewerWaits:
			why = append(why, fmt.Sprintf("of %d a newer letter of the message waits: redrive that one", l.Letters))
		case Discarded:
			why = append(why, fmt.Sprintf("of %d: %s", l.Letters, notRedriven(true)))
		default:
			why = append(why, fmt.Sprintf("of %d: %s", l.Letters, notRedriven(false)))
		}
	}
	return "all of the selection is left out: " + boundedtext.Text(strings.Join(why, "; "), 1000)
}

func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// logged bounds a value that came with a message before it goes into a log line, an error or a report.
func logged(value string) string { return boundedtext.Text(value, 200) }
