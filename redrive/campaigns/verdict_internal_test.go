package campaigns

import "testing"

// Feature V7: what stops a campaign never says that more letters failed again than were redriven: the worker counts what it
// published later than the receiver hears of it.
func TestVerdictIsOneReading(t *testing.T) {
	j := judgement{failed: 29, heard: 29, redriven: 26, request: &Request{StopAt: 0.5, StopAfter: 20}}
	if v, why := j.verdict(Running); v != stop || why != "29 of 29 letters redriven failed again" {
		t.Error(v, why)
	}
	j.redriven = 40
	if v, why := j.verdict(Running); v != stop || why != "29 of 40 letters redriven failed again" {
		t.Error(v, why)
	}
	j.redriven = 60
	if v, why := j.verdict(Running); v != nothing {
		t.Error(v, why)
	}
}
