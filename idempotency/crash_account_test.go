package idempotency_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// account says afterwards what became of the messages.
type account struct {
	*cell
	died map[string]int // processes, by step
}

// says notes a problem of a message at whose step a process was killed, or of none.
func (a *account) says(step, format string, args ...any) {
	a.Helper()
	a.Errorf("%s: %s", step, fmt.Sprintf(format, args...))
}

func (a *account) add(ch *lineage) {
	died := map[string]string{} // by id, the step
	seen := map[string]bool{}
	for _, line := range lines(a, ch.kills()) {
		index, step, _ := strings.Cut(line, ":")
		i, err := strconv.Atoi(index)
		if err != nil || i >= len(ch.Messages) || ch.Messages[i].DiesAt != step || seen[line] {
			a.says("", "killed at %q", line)
			continue
		}
		seen[line] = true
		died[ch.Messages[i].ID] = step
		a.died[step]++
	}
	if ch.died != len(seen) {
		a.says("", "%d processes died of SIGKILL, and %d kills are on record", ch.died, len(seen))
	}
	acks := lines(a, ch.acks())
	slices.Sort(acks)
	if n := len(slices.Compact(acks)); n != len(ch.Messages) {
		a.says("", "%d of %d messages were acked", n, len(ch.Messages))
	}
	for _, letter := range ch.letters(a).read() {
		a.says(died[letter.ID], "dead letter: %+v", letter)
	}
	effects, published, keys := ch.took(a), ch.published(), ch.keys()
	for _, id := range ch.ids() {
		step := died[id]
		wantEffects, wantOutputs := 1, 1
		if ch.Leases && (step == "handled" || step == "committing") { // died between effect and record
			wantEffects = 2
		}
		if step == "published" { // died before the mark
			wantOutputs = 2
		}
		if n := effects[id]; n != wantEffects {
			a.says(step, "%s took effect %d times, want %d", id, n, wantEffects)
		}
		if n := len(published[id]); n != wantOutputs {
			a.says(step, "%s has %d outputs, want %d", id, n, wantOutputs)
		}
		if ids := slices.Compact(published[id]); len(ids) > 1 || slices.Contains(ids, "") {
			a.says(step, "%s has outputs with ids %q", id, ids)
		}
		if keys[id] != 1 {
			a.says(step, "%s is recorded %d times", id, keys[id])
		}
	}
}

func (ch *lineage) ids() (ids []string) {
	for _, p := range ch.Messages {
		if !slices.Contains(ids, p.ID) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// took counts effects by id. Of those outside of SQL the fences must rise.
func (ch *lineage) took(a *account) map[string]int {
	effects := map[string]int{}
	if !ch.Leases {
		for _, id := range ch.ids() {
			effects[id] = count(ch, ch.db, `effects WHERE id = '`+tag(id)+`'`)
		}
		return effects
	}
	fences := map[string]int64{}
	for _, line := range lines(ch, ch.effects()) {
		id, token, _ := strings.Cut(line, ":")
		fence, err := strconv.ParseInt(token, 10, 64)
		if err != nil || fence <= fences[id] {
			a.says("", "%s has fence %s after %d, %v", id, token, fences[id], err)
		}
		fences[id] = fence
		effects[id]++
	}
	return effects
}

// published are the ids of outputs, by the id of their source.
func (ch *lineage) published() map[string][]string {
	ids := map[string][]string{}
	for _, s := range ch.outputs(ch).read() {
		ids[s.Payload] = append(ids[s.Payload], s.ID)
	}
	return ids
}

// keys counts applied keys by id, with no outputs left: all were marked.
func (ch *lineage) keys() map[string]int {
	keys := map[string]int{}
	for _, id := range ch.ids() {
		keys[id] = count(ch, ch.db, `spillway_keys WHERE consumer = 'shop/billing' AND id = '`+id+`' AND expires_at IS NULL AND outputs IS NULL`)
	}
	return keys
}
