package idempotency_test

import (
	"slices"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// account says afterwards what became of the messages, and counts the processes that were killed at each step.
func (ch *lineage) account(killed map[string]int) {
	died := map[string]string{} // by id, the step
	for _, line := range lines(ch, ch.file("kills")) {
		index, step, _ := strings.Cut(line, ":")
		id := ch.Messages[testkit.Must(strconv.Atoi(index))].ID
		testkit.Check(ch, died[id] == "", "%s: killed at %s and at %s", id, died[id], step)
		died[id] = step
		killed[step]++
	}
	testkit.Equal(ch, "processes that died of SIGKILL", ch.died, len(died))
	acks := lines(ch, ch.file("acks"))
	slices.Sort(acks)
	testkit.Equal(ch, "messages that were acked", len(slices.Compact(acks)), len(ch.Messages))
	letters := ch.paper(ch, "letters").read()
	testkit.Check(ch, len(letters) == 0, "dead letters: %+v", letters)
	effects, outputs := ch.took(), map[string][]string{} // by the id of their source
	for _, s := range ch.paper(ch, "outputs").read() {
		outputs[s.Payload] = append(outputs[s.Payload], s.ID)
	}
	for _, m := range ch.Messages {
		id, step := m.ID, died[m.ID]
		wantEffects, wantOutputs := 1, 1
		if ch.Leases && (step == "handled" || step == "committing") { // died between effect and record
			wantEffects = 2
		}
		if step == "published" { // died before the mark
			wantOutputs = 2
		}
		ids := slices.Compact(slices.Clone(outputs[id]))
		recorded := count(ch, ch.db, `spillway_keys WHERE consumer = 'shop/billing' AND id = '`+id+
			`' AND expires_at IS NULL AND outputs IS NULL`) // all were marked
		testkit.Check(ch, effects[id] == wantEffects && len(outputs[id]) == wantOutputs && len(ids) == 1 && ids[0] != "" &&
			recorded == 1, "%s, killed at %q: %d effects, want %d; outputs %q, want %d of one id; recorded %d times",
			id, step, effects[id], wantEffects, outputs[id], wantOutputs, recorded)
	}
}

// took counts effects by id. Of those outside of SQL the fences must rise.
func (ch *lineage) took() map[string]int {
	effects := map[string]int{}
	if !ch.Leases {
		for _, m := range ch.Messages {
			effects[m.ID] = count(ch, ch.db, `effects WHERE id = '`+tag(m.ID)+`'`)
		}
		return effects
	}
	fences := map[string]int64{}
	for _, line := range lines(ch, ch.file("effects")) {
		id, token, _ := strings.Cut(line, ":")
		fence := testkit.Must(strconv.ParseInt(token, 10, 64))
		testkit.Check(ch, fence > fences[id], "%s has fence %d after %d", id, fence, fences[id])
		fences[id] = fence
		effects[id]++
	}
	return effects
}
