package erasure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed/waiting"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable/forget"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Erase erases a person's data, in small transactions beside other traffic. It returns what it did, also with an error,
// and can be called again after any. If something was left alone, the error is ErrInHand.
func Erase(ctx context.Context, stores Stores, request Request) (Report, error) {
	if ctx == nil {
		return Report{}, errors.New("erasure: the context is nil: use context.Background() if there is no other")
	}
	if err := errors.Join(stores.validate(), request.validate()); err != nil {
		return Report{}, err
	}
	request.RemoveKeys = request.RemoveKeys || request.ForgetIDs
	e := erasing{Stores: stores, request: &request,
		report:    Report{Selector: metadatacodec.Selector(request.IDs, request.Metadata)},
		forgotten: map[string]struct{}{}}
	e.keeper, _ = stores.Keys.(keytable.Keeper)
	err := e.record(ctx, "began")
	for _, step := range []func(context.Context) error{e.campaigns, e.notes, e.named, e.delayed, e.parked, e.letters,
		e.unsearched} {
		if err == nil {
			err = step(ctx)
		}
	}
	if err == nil {
		err = e.record(ctx, fmt.Sprintf("erased %d letters, %d delayed messages, %d keys, %d texts; left %d in hand",
			e.report.Letters, e.report.Delayed, e.report.Keys, e.report.Texts, e.report.inHand()))
	}
	if err == nil && e.report.inHand() > 0 && !request.DryRun {
		err = ErrInHand
	}
	return e.report, err
}

// erasing is one Erase.
type erasing struct {
	Stores
	request   *Request
	report    Report
	keeper    keytable.Keeper     // Keys, or nil
	forgotten map[string]struct{} // ids whose keys were looked for
}

func (e *erasing) progress() {
	if e.request.Progress != nil {
		e.request.Progress(e.report)
	}
}

func (e *erasing) act() letters.Act {
	return letters.Act{By: e.request.By, Reason: e.request.Reason, Detail: "selector " + e.report.Selector}
}

func (e *erasing) record(ctx context.Context, what string) error {
	if e.request.DryRun {
		return nil
	}
	act := e.act()
	act.Detail += "; " + what
	act.RedriveID = e.request.Key
	return hidden.Of(e.Letters).RecordErasure(ctx, act)
}

// notes takes the values from what persons said of causes.
func (e *erasing) notes(ctx context.Context) error {
	if e.Letters == nil || len(e.request.texts()) == 0 {
		return nil
	}
	n, err := hidden.Of(e.Letters).ForgetNotes(ctx, e.request.DryRun, e.request.texts())
	e.report.Texts += n
	e.progress()
	return err
}

// campaigns takes the values from what campaigns say. An id that stays in the record stays there too.
func (e *erasing) campaigns(ctx context.Context) error {
	if e.Campaigns == nil || len(e.request.texts()) == 0 {
		return nil
	}
	done, err := hidden.Of(e.Campaigns).Forget(ctx, e.request.DryRun, e.request.texts()...)
	e.report.Texts, e.report.CampaignsOpen = e.report.Texts+done.Texts, done.Open
	e.progress()
	return err
}

// named forgets the keys of ids that were asked for: their letters may be gone already.
func (e *erasing) named(ctx context.Context) error { return e.keys(ctx, e.request.IDs) }

func (e *erasing) delayed(ctx context.Context) error {
	if safecall.IsNil(e.Delayed) {
		return nil
	}
	table, _ := hidden.In[*waiting.Table](e.Delayed)
	chosen := waiting.Erasing{IDs: e.request.IDs, DryRun: e.request.DryRun, Before: e.keys}
	if len(chosen.IDs) == 0 {
		chosen.Match = e.request.matches
	}
	done, err := table.Erase(ctx, chosen)
	e.report.Delayed, e.report.DelayedInHand = done.Messages, done.InHand
	e.progress()
	return err
}

// parked erases what waits in the order of its key, beside the keys. It counts as delayed.
func (e *erasing) parked(ctx context.Context) error {
	if e.keeper == nil {
		return nil
	}
	n, err := parked.Erase(ctx, e.keeper.Keys(), parked.Erasing{Match: e.request.matches, DryRun: e.request.DryRun,
		Removed: e.keys})
	e.report.Delayed += n
	e.progress()
	return err
}

// matches reports whether a message is meant, by what it has or what its producer gave it.
func (r *Request) matches(id string, metadata map[string]string) bool {
	msg := message.NewMessage(id, nil)
	msg.Metadata = metadata
	original := poison.Read(msg).Original
	if len(r.IDs) > 0 {
		return slices.Contains(r.IDs, id) || slices.Contains(r.IDs, original.UUID)
	}
	for key, value := range r.Metadata {
		if got, ok := metadata[key]; ok && got == value {
			continue
		}
		if got, ok := original.Metadata[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// keys forgets the keys of messages, once each.
func (e *erasing) keys(ctx context.Context, ids []string) error {
	if e.keeper == nil {
		return nil
	}
	var keys []string
	for _, id := range ids {
		if _, done := e.forgotten[id]; !done && id != "" {
			e.forgotten[id] = struct{}{}
			keys = append(keys, id)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	n, held, err := forget.Keys(ctx, e.keeper.Keys(),
		forget.Request{Keys: keys, Remove: e.request.RemoveKeys, DryRun: e.request.DryRun})
	e.report.Keys, e.report.KeysInHand = e.report.Keys+n, e.report.KeysInHand+held
	e.progress()
	return err
}

func (e *erasing) letters(ctx context.Context) error {
	f := letters.Filter{IDs: e.request.IDs, Metadata: e.request.Metadata}
	before := e.report
	_, err := hidden.Of(e.Letters).Erase(ctx, f, e.act(),
		inside.EraseOptions{DryRun: e.request.DryRun, ForgetIDs: e.request.ForgetIDs, Texts: e.request.texts(), Before: e.beside,
			Progress: func(done inside.Erased) {
				e.report.Letters, e.report.LettersInHand = before.Letters+done.Letters, before.LettersInHand+done.InHand
				e.progress()
			}})
	return err
}

// unsearched counts what can have data of the person and is not found by metadata.
func (e *erasing) unsearched(ctx context.Context) error {
	if len(e.request.Metadata) == 0 {
		return nil
	}
	if e.keeper != nil {
		n, err := forget.CountOutputs(ctx, e.keeper.Keys(), slices.Collect(maps.Keys(e.forgotten)))
		if err != nil {
			return err
		}
		e.report.KeysUnsearched = n
	}
	keys, err := hidden.Of(e.Letters).SealKeys(ctx)
	if err != nil {
		return err
	}
	var sealed []string
	for _, key := range keys {
		if key.Key != "" {
			sealed = append(sealed, key.Key)
		}
	}
	n := 0
	for some := range slices.Chunk(sealed, letters.MaxListed) {
		f := living()
		f.SealKeys = some
		all, err := e.Letters.Count(ctx, f)
		if err != nil {
			return err
		}
		f.Metadata = e.request.Metadata
		found, err := e.Letters.Count(ctx, f)
		if err != nil {
			return err
		}
		n += max(0, all-found)
	}
	e.report.SealedUnsearched = n
	e.progress()
	return nil
}

// living chooses the letters that are not erased.
func living() (f letters.Filter) {
	for _, status := range letters.Statuses() {
		if status != letters.StatusErased {
			f.Statuses = append(f.Statuses, status)
		}
	}
	return f
}

// beside erases what belongs to letters: it would not be found without them.
func (e *erasing) beside(ctx context.Context, seqs []int64, ids []string) error {
	if err := e.keys(ctx, ids); err != nil || e.Campaigns == nil || e.request.DryRun {
		return err
	}
	n, err := hidden.Of(e.Campaigns).ForgetLetters(ctx, seqs...)
	e.report.Texts += n
	return err
}
