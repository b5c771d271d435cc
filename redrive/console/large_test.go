package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// truth is how many letters a filter chooses, counted without a limit.
func (b *bench) truth(f letters.Filter) int {
	b.t.Helper()
	n := testkit.Must(b.store.Count(b.t.Context(), f))
	return n
}

// several stores n letters, few at a time: storing has a time limit.
func (b *bench) several(n int) {
	b.t.Helper()
	for some := range slices.Chunk(fixture.Several(n), 500) {
		fixture.Publish(b.t, b.store, "orders.dlq", some...)
	}
}

// buttons are what the buttons of a page say that begin with a word.
func (p page) buttons(t testing.TB, begin string) (labels []string) {
	t.Helper()
	for _, button := range p.elements(t, "button") {
		if label := textOf(button); strings.HasPrefix(label, begin) {
			labels = append(labels, label)
		}
	}
	return labels
}

// says fails the test unless the button of a decision, and what the page says was done, are true, or say that it is not
// known.
func (p page) says(t testing.TB, d *decision, known bool, left, done int) {
	t.Helper()
	button := d.Button(numberIf(left, known))
	got := p.buttons(t, strings.Fields(d.Title)[0])
	testkit.Check(t, slices.Contains(got, button), "the buttons say %q, want %q", got, button)
	if sofar := say(d.SoFar, done); strings.Contains(p.body, sofar) != known {
		t.Errorf("known: %v, and the page says %q: %v", known, sofar, !known)
	}
}

// patiently sends a form until a step gets somewhere: on a slow machine the time of a step may be too short for one
// transaction.
func (b *bench) patiently(path string, form url.Values) page {
	b.t.Helper()
	for {
		p := b.post(path, form)
		if p.StatusCode != http.StatusServiceUnavailable || b.console.step > time.Minute {
			return p
		}
		b.console.step *= 2
	}
}

// Feature V11, decision 23: more letters are discarded than one request can do, in steps that a person can go on with,
// leave and take up again. Each number is true, or the page says that it is not known. It ends with the number of all.
// So they are restored.
func TestDiscard_large(t *testing.T) {
	const many = 6_000 // more than a dry run reads
	b := newBench(t)
	b.several(many)
	last, err := b.store.Inside().LastSeq(t.Context())
	testkit.NoError(t, err)
	waiting, step := letters.Filter{MaxSeq: last}, 0
	p := b.get("/discard?" + b.everything())
	p.want(t, http.StatusOK, say(discards.number, many))
	key := p.fields(t).Get("key")
	b.get("/redrive?"+b.everything()).want(t, http.StatusOK, say("Redrive up to %s letter|Redrive up to %s letters", many)+"<")
	b.console.counting = -1
	b.get("/redrive?"+b.everything()).want(t, http.StatusOK, "Redrive all that match (not counted)"+"<", say("These numbers are of the first %s letter. There may be more.|These numbers are of the first %s letters. There may be more.", operate.Planned))
	b.console.timeout = 2 * time.Minute
	b.console.step = time.Millisecond // patiently makes it as long as one transaction takes here
	form := with(p.fields(t), "reason", "INC-7")
	for {
		b.console.counting = []time.Duration{-1, time.Minute}[step%2]
		known := step%2 == 1
		if p = b.patiently("/discard", form); p.StatusCode != http.StatusOK {
			break
		}
		left, done := b.truth(waiting), b.truth(discards.Of(key))
		if left == 0 && known { // it would have led to the end
			t.Error("no letter is left, and the page goes on")
		}
		testkit.Require(t, done != 0 && left+done == many, "%d are left, and %d done, of %d", left, done, many)
		form = p.fields(t)
		if step++; step == 4 {
			b.console.step *= 8
		}
		if left == 0 {
			continue
		}
		p.says(t, discards, known, left, done)
		stopped := b.get(p.linked(t, "Stop here"))
		stopped.says(t, discards, known, left, done)
		if again := stopped.linked(t, "Count them"); !known {
			b.get(strings.TrimPrefix(again, ".")).says(t, discards, true, left, done)
		}
		if step%3 == 0 { // a person who left takes it up again
			form = with(stopped.fieldsOf(t, discards.Button(numberIf(left, known))), "reason", "INC-7 again")
		}
	}
	end := b.get(p.goes(t, "discards/"))
	end.want(t, http.StatusOK, say(discards.Done, many), restores.Button(operate.Exactly(many)))
	testkit.Check(t, step >= 2 && len(end.buttons(t, "Discard")) == 0,
		"%d steps, and then the buttons %q", step, end.buttons(t, ""))
	b.want(letters.StatusDiscarded, many)

	steps := 0
	form, b.console.step = reason, time.Millisecond
	for ; ; steps++ {
		if steps == 4 {
			b.console.step *= 8
		}
		if p = b.patiently("/discards/"+key+"/undo", form); p.StatusCode != http.StatusOK {
			break
		}
		left := b.truth(discards.Of(key))
		got := p.buttons(t, "Restore")
		testkit.Check(t, slices.Equal(got, []string{restores.Button(numberIf(left, b.console.counting > 0))}),
			"%d are left, and the buttons say %q", left, got)
		form = p.fields(t)
	}
	b.get(p.goes(t, "discards/")).want(t, http.StatusOK, say(discards.Done, 0))
	testkit.Check(t, steps >= 2, "%d steps", steps)
	b.want(letters.StatusWaiting, many)
	var recorded int
	err = b.db.QueryRowContext(context.Background(), `SELECT COUNT(*) FROM spillway_letter_events WHERE kind IN ('discarded', 'waiting')`).Scan(&recorded)
	testkit.Check(t, err == nil && recorded == 2*many, "%d events on record: %v", recorded, err)
}
