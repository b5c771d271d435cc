package operate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed/waiting"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/erasure"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Decision is what a person decides about letters: to discard them, or to restore discarded ones.
type Decision struct {
	// of the decision. The ids of its records begin with it, so that none is the id of a campaign.
	Name string
	From []letters.Status // the states of letters that it takes
	To   letters.Status
}

// The decisions.
var (
	Discard = Decision{"discard",
		[]letters.Status{letters.StatusWaiting, letters.StatusRefused, letters.StatusQuarantined},
		letters.StatusDiscarded}
	Restore = Decision{"restore", []letters.Status{letters.StatusDiscarded}, letters.StatusWaiting}
)

// NewID returns the id of a record that the decision will have.
func (d Decision) NewID() string { return d.Name + "-" + watermill.NewUUID() }

// Made reports whether a text is the id of a record of the decision.
func (d Decision) Made(id string) bool {
	rest, ok := strings.CutPrefix(id, d.Name+"-")
	return ok && IsUUID(rest)
}

var uuids = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// IsUUID reports whether a text is a UUID in lower case.
func IsUUID(text string) bool { return uuids.MatchString(text) }

// Of chooses the letters of a record that nothing has changed since.
func (d Decision) Of(id string) letters.Filter {
	return letters.Filter{RedriveIDs: []string{id}, Statuses: []letters.Status{d.To}}
}

// Decided returns the latest event under the id of a decision, or none.
func (d *Desk) Decided(ctx context.Context, id string) ([]letters.Event, error) {
	return d.Store.Audit(ctx, letters.EventFilter{RedriveIDs: []string{id}, NewestFirst: true, Limit: 1})
}

// Deciding is a decision about letters that a person may send twice.
type Deciding struct {
	What Decision
	Selection
	// ID is that of its record. What was done under it is not done again. Without one nothing is known of a request
	// before.
	ID string
	// TakenUp lets a person take it up again with another reason.
	TakenUp bool
	// Seen is the number of letters that the person saw, or nil. If more match, nothing is changed.
	Seen *int
	// Step is how long this call may take, and Counting how long it may count.
	Step, Counting time.Duration
}

// MoreMatch is the error of a selection that has more letters than the person saw. Nothing was changed.
type MoreMatch struct{ Now int }

func (m *MoreMatch) Error() string {
	return fmt.Sprintf("%d letters match now, more than were seen", m.Now)
}

// ErrNothing is the error of a decision that no letter of the selection is in a state for.
var ErrNothing = errors.New("no letter of the selection is in a state that this takes")

// Carry carries out a decision. It returns how many letters this call changed, also with an error. It is cut if its
// time was over when some letters were changed and not all: the same call goes on.
func (d *Desk) Carry(ctx context.Context, who Person, do Deciding) (n int, cut bool, err error) {
	if err := who.allowed(Act); err != nil {
		return 0, false, err
	}
	act := who.act()
	act.RedriveID = do.ID
	did := func() (bool, error) {
		if do.TakenUp && do.ID != "" {
			events, err := d.Decided(ctx, do.ID)
			return len(events) > 0, err
		}
		return d.did(ctx, act)
	}
	before, err := did()
	if err == nil && !before {
		err = d.noMore(ctx, do.Selection, do.Seen, 0, do.Counting)
	}
	if err != nil {
		return 0, false, err
	}
	timed, cancel := context.WithTimeout(ctx, do.Step)
	defer cancel()
	for _, f := range do.parts() {
		var some int
		some, err = d.Store.MarkAll(timed, f, do.What.To, act)
		if n += some; err != nil {
			break
		}
	}
	switch {
	case err != nil && n > 0 && timed.Err() != nil && ctx.Err() == nil:
		return n, true, nil
	case err != nil || n > 0 || before:
		return n, false, err
	}
	if before, err = did(); err == nil && !before { // else the other of two was first
		err = ErrNothing
	}
	return 0, false, err
}

// noMore returns an error if more letters match than a person saw. Letters beyond most, if it is not 0, are not taken.
func (d *Desk) noMore(ctx context.Context, s Selection, seen *int, most int, counting time.Duration) error {
	if seen == nil || most > 0 && *seen >= most {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, counting)
	defer cancel()
	if n := d.Count(ctx, s); n.Known() && n.N() > *seen {
		return &MoreMatch{n.N()}
	}
	return nil
}

// Number is how many letters there are, or that it is not known. What was counted when the time was over is no number,
// so a number that is not known has none to show.
type Number struct {
	n     int
	known bool
}

// Exactly is a number that is known.
func Exactly(n int) Number { return Number{n, true} }

// Known reports whether the number is known.
func (n Number) Known() bool { return n.known }

// N is the number. A face that shows it without asking Known fails: an answer without a number is better than a wrong
// one.
func (n Number) N() int {
	if !n.known {
		panic("operate: a number that is not known is shown")
	}
	return n.n
}

// None reports whether it is known that there is no letter.
func (n Number) None() bool { return n.known && n.n == 0 }

// Some reports whether it is known that there are letters.
func (n Number) Some() bool { return n.known && n.n > 0 }

// Count counts the letters of a selection that are there now, if that is done before ctx ends.
func (d *Desk) Count(ctx context.Context, s Selection) Number {
	sum := 0
	for _, f := range s.parts() {
		n, err := d.Store.Count(ctx, f)
		if err != nil {
			return Number{}
		}
		sum += n
	}
	return Exactly(sum)
}

// Freeze selects the letters that a filter chooses now: those up to the last Seq. Letters that arrived while they were
// counted would be in the number and not in the selection, so it counts again then.
func (d *Desk) Freeze(ctx context.Context, f letters.Filter) (s Selection, err error) {
	s.Filter = f
	for range 3 {
		if s.Filter.MaxSeq, err = hidden.Of(d.Store).LastSeq(ctx); err != nil {
			return s, err
		}
		if s.Number, err = d.Store.Count(ctx, f); err != nil { // the numbers of causes answer, and no letter is read
			return s, err
		}
		if again, err := hidden.Of(d.Store).LastSeq(ctx); err != nil || again == s.Filter.MaxSeq {
			return s, err
		}
	}
	s.Number, err = d.Store.Count(ctx, s.Filter) // letters arrive all the time: count those up to the last one
	return s, err
}

// Sample returns the first letters of a selection.
func (d *Desk) Sample(ctx context.Context, s Selection, most int) (heads []letters.Head, err error) {
	parts := s.parts()
	if len(s.Seqs) > 0 {
		parts = parts[:min(len(parts), most)]
	}
	for _, f := range parts {
		f.Limit = most
		some, err := d.Store.Heads(ctx, f)
		if err != nil {
			return heads, err
		}
		heads = append(heads, some...)
	}
	return heads, nil
}

// Erase erases a person's data, or says what would be erased, in all tables that are in the database of the letters. It
// takes as long as ctx lasts, and the same call goes on. A request of the person's key that was done before is not done
// again: it is complete, without a report.
func (d *Desk) Erase(ctx context.Context, who Person, r erasure.Request) (report erasure.Report, complete bool,
	err error) {
	if r.DryRun {
		err = who.may(Act)
	} else {
		err = who.allowed(Approve)
	}
	if err != nil {
		return report, false, err
	}
	r.Act = campaigns.Act{By: who.Name, Reason: who.Reason}
	selector := metadatacodec.Selector(r.IDs, r.Metadata)
	if act := who.once(erasedBy); !r.DryRun {
		r.Key = act.RedriveID
		done, err := d.before(ctx, act, func(e letters.Event) bool { return selectorOf(e) == selector })
		if err != nil {
			return report, false, err
		}
		if done != nil && strings.HasSuffix(done.Detail, noneLeft) {
			report.Selector = selector
			return report, true, nil
		}
	}
	stores, err := d.erasable(ctx)
	if err != nil {
		return report, false, err
	}
	report, err = erasure.Erase(ctx, stores, r)
	switch {
	case err == nil:
		return report, true, nil
	case report.Selector == "": // the request was refused
		return report, false, &Wrong{Why: strings.TrimPrefix(err.Error(), "erasure: ")}
	case errors.Is(err, erasure.ErrInHand), errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = nil
	}
	return report, false, err
}

// erasable opens all stores whose tables are in the database. It makes none.
func (d *Desk) erasable(ctx context.Context) (s erasure.Stores, err error) {
	s.Letters, s.Campaigns = d.Store, d.Campaigns
	tables, err := d.Tables(ctx)
	db, service := hidden.Of(d.Store).DB(), hidden.Of(d.Store).Service()
	if err != nil {
		return s, err
	}
	on, err := database.Detect(ctx, db)
	if tables["delayed"] > 0 {
		s.Delayed = hidden.By(waiting.Of(on, service))
	}
	if tables["keys"] > 0 {
		s.Keys = keytable.Keys{On: on, Service: service}
	}
	return s, err
}

// ErasureID is the id of the erasure that a person's key names. Without a key there is none.
func ErasureID(who Person) string { return who.once(erasedBy).RedriveID }

// noneLeft is how the record of an erasure ends that left nothing in hand.
const noneLeft = "; left 0 in hand"

// selectorOf is the hash of what an erasure looked for.
func selectorOf(e letters.Event) string {
	selector, _, _ := strings.Cut(e.Detail, ";")
	return strings.TrimPrefix(selector, "selector ")
}
