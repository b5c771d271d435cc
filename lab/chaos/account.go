package main

import (
	"context"
	"slices"
	"time"
)

// report is the JSON line of a campaign.
type report struct {
	Chaos    string         `json:"chaos"`
	Seed     uint64         `json:"seed"`
	Messages int            `json:"messages"`
	Kinds    map[string]int `json:"kinds"`
	// Kills is what happened to consumers and servers, ends by deadly messages and by themselves included.
	Kills map[string]int `json:"kills"`
	// Lost have neither effect nor letter, and nothing waits any more. Stuck are as many as that while something does.
	Lost  int `json:"lost"`
	Stuck int `json:"stuck"`
	// Doubled took effect more than once.
	Doubled             int `json:"doubled"`
	HealthyDeadLettered int `json:"healthy_dead_lettered"`
	// ByCause says for which reason healthy ones were set aside.
	ByCause map[string]int `json:"by_cause"`
	// WrongLetters have another reason than their kind demands, or a payload that is not the original's; Undue are
	// effects of what must not have any, and ids that were never published.
	WrongLetters int `json:"wrong_letters"`
	Undue        int `json:"undue"`
	// OutputsMissing are effects without their output, OutputsChanged those with outputs of several ids.
	OutputsMissing int `json:"outputs_missing"`
	OutputsChanged int `json:"outputs_changed"`
	// Letters counts by reason; Repeated are those beyond the first of a message, which README does not rule out.
	Letters  map[string]int `json:"letters"`
	Repeated int            `json:"letters_repeated"`
	Seconds  float64        `json:"seconds"`

	bad []string // ids with a story
}

// Good reports whether all is as it must be.
func (r *report) Good() bool {
	return r.Lost+r.Stuck+r.Doubled+r.HealthyDeadLettered+r.WrongLetters+r.Undue+r.OutputsMissing+r.OutputsChanged == 0
}

// account reads what the campaign left behind, and prints the story of what is wrong.
func (c *campaign) account(left int) (*report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // also when the campaign's time is up
	defer cancel()
	e, err := c.gather(ctx, left)
	if err != nil {
		return nil, err
	}
	r := c.plan.judge(e)
	c.mu.Lock()
	r.Chaos, r.Kills, r.Seconds = c.name, c.happened, time.Since(c.begun).Round(100*time.Millisecond).Seconds()
	c.mu.Unlock()
	c.explain(r, e)
	return r, nil
}

// judge compares what is there with what must be.
func (p *plan) judge(e *evidence) *report {
	r := &report{Seed: p.Seed, Messages: p.Messages, Kinds: p.counts, Letters: map[string]int{},
		ByCause: map[string]int{}}
	missing := 0
	planned := map[string]bool{}
	for _, id := range p.ids {
		if planned[id] {
			continue
		}
		planned[id] = true
		k, effects, letters, outputs := kindOf(id), e.effects[id], e.letters[id], e.outputs[id]
		for _, l := range letters {
			r.Letters[l.reason]++
		}
		r.Repeated += max(0, len(letters)-1)
		good := r.note(&r.Doubled, effects > 1)
		good = r.note(&r.Undue, effects > k.effects && effects == 1) && good
		if k.reason == "" {
			good = r.note(&missing, effects == 0 && len(letters) == 0) && good
			good = r.note(&r.HealthyDeadLettered, len(letters) > 0) && good
			good = r.note(&r.OutputsMissing, effects > 0 && len(outputs) == 0) && good
			good = r.note(&r.OutputsChanged, len(outputs) > 1) && good
			if len(letters) > 0 {
				r.ByCause[letters[0].reason]++
			}
		} else {
			good = r.note(&missing, len(letters) == 0) && good
			good = r.note(&r.WrongLetters, slices.ContainsFunc(letters, func(l letter) bool {
				return l.reason != k.reason || l.altered
			})) && good
		}
		if !good {
			r.bad = append(r.bad, id)
		}
	}
	for id := range e.effects {
		r.note(&r.Undue, !planned[id])
	}
	for id := range e.letters {
		if !r.note(&r.Undue, !planned[id]) {
			r.bad = append(r.bad, id)
		}
	}
	if e.left > 0 {
		r.Stuck = max(missing, 1)
	} else {
		r.Lost = missing
	}
	return r
}

// note counts what is so, and reports whether it is not.
func (r *report) note(count *int, so bool) bool {
	if so {
		*count++
	}
	return !so
}
