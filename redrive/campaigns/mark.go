package campaigns

import (
	"context"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// maxMarks is how many letters are marked in one transaction.
const maxMarks = 256

// marking is a letter that is to be marked. It has a place in flight.unmarked.
type marking struct {
	piece   piece
	status  letters.Status
	outcome outcome
}

// mark writes down what became of letters, with the leases that prove it, those that came in the meantime together. It
// ends when flight.marks is closed and empty.
func (f *flight) mark() {
	var kept *marking // of another status than those before it
	for {
		first, open := marking{}, true
		if kept != nil {
			first, kept = *kept, nil
		} else if first, open = <-f.marks; !open {
			return
		}
		some := []marking{first}
		for kept == nil && len(some) < maxMarks {
			m, more := marking{}, false
			select {
			case m, more = <-f.marks:
			default:
			}
			if !more {
				break
			}
			if m.status != first.status {
				kept = &m
			} else {
				some = append(some, m)
			}
		}
		f.markAll(first.status, some)
	}
}

// markAll marks letters in one transaction. It tries for as long as it takes: what is published must be marked, and
// meanwhile no more than Unmarked letters are published. It gives letters up whose leases are lost. After the end of
// the worker it tries for maxWrite.
func (f *flight) markAll(status letters.Status, some []marking) {
	act := f.act()
	if status == letters.StatusQuarantined {
		act.Reason = classify.ReasonMaxRedrives
	}
	began, edited := time.Now(), status == letters.StatusRedriven && f.campaign.Request.Edit != nil
	for pause := firstPause; len(some) > 0; pause = min(2*pause, maxPause) {
		ctx, cancel := context.WithTimeout(context.Background(), maxWrite)
		var is map[int64]bool
		var err error
		if edited { // before the mark, so that the record has the edit before the redrive
			err = f.recordEdits(ctx, act, some)
			edited = err != nil
		}
		if err == nil {
			is, err = f.settleLetters(ctx, status, act, some)
		}
		cancel()
		if err == nil {
			if f.markFails {
				f.markFails = false
				logging.LettersMarked.Write(f.all.config.Logger, nil, logging.Fields{logging.Campaign: f.campaign.ID})
			}
			for _, m := range some {
				f.marked(m, is[m.piece.row.seq])
			}
			return
		}
		if !f.markFails {
			f.markFails = true
			logging.LettersUnmarked.Write(f.all.config.Logger, err,
				logging.Fields{logging.Campaign: f.campaign.ID, logging.Letters: len(some)})
		}
		time.Sleep(pause)
		over := f.settler.isEnding() && time.Since(began) > maxWrite
		left := some[:0]
		for _, m := range some {
			if over || m.piece.batch.isLost(m.piece.row.seq) { // the next one to take it publishes it again, if it was not marked after all
				f.over(m.piece, result{row: m.piece.row})
			} else {
				left = append(left, m)
			}
		}
		some = left
	}
}

// settleLetters marks letters, of whatever leases, in one transaction. It returns those that were marked.
func (f *flight) settleLetters(ctx context.Context, status letters.Status, act letters.Act,
	some []marking) (map[int64]bool, error) {
	of := make(map[*batch][]*letters.Letter)
	for _, m := range some {
		of[m.piece.batch] = append(of[m.piece.batch], m.piece.letter)
	}
	claims := make([]inside.Claim[letters.Letter], 0, len(of))
	for b, letters := range of {
		claims = append(claims, b.lease.Of(letters...))
	}
	marked, err := f.all.store.Inside().Settle(ctx, status, act, claims...)
	is := make(map[int64]bool, len(marked))
	for _, seq := range marked {
		is[seq] = true
	}
	return is, err
}

// recordEdits records that letters were published with changes.
func (f *flight) recordEdits(ctx context.Context, act letters.Act, some []marking) error {
	seqs := make([]int64, len(some))
	for i, m := range some {
		seqs[i] = m.piece.row.seq
	}
	act.Detail = inside.EditText(f.campaign.Request.Edit)
	_, err := f.all.store.Inside().Record(ctx, nil, string(letters.EventEdited), act, seqs...)
	return err
}

// marked notes what became of a letter. A letter that was published and could not be marked is another's now.
func (f *flight) marked(m marking, is bool) {
	r := result{row: m.piece.row}
	if is || m.outcome == redriven {
		r.outcome = m.outcome
	}
	f.over(m.piece, r)
}

// over notes a result, and gives the letter's place to another.
func (f *flight) over(p piece, r result) {
	p.batch.through(p.row.seq)
	f.settler.note(p.batch, r)
	<-f.unmarked
}
