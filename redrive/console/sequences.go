package console

import (
	"strconv"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/order/parked"
)

const (
	sequencesShown = 100
	mostSequences  = 1000
	parkedShown    = 50
)

// sequences lists the keys whose messages wait in order, those with the most messages first.
func (c *console) sequences(r *request) (answer, error) {
	show := rows(r.Query, sequencesShown, mostSequences)
	all, err := c.desk.Sequences(r.HTTP.Context(), show)
	v := sequenceList{Look: r.Person.Right >= operate.Look}
	for _, p := range all {
		p = c.desk.Parked(r.who(""), p)
		v.Rows = append(v.Rows, sequenceRow{p, keyOf(p), operate.Waiting(p), r.link("sequences/"+id(p.Seq), nil)})
	}
	if v.Cut = len(all) == show; v.Cut && show < mostSequences {
		v.More = r.link("sequences", map[string][]string{"rows": {strconv.Itoa(mostSequences)}})
	}
	return answer{page: "sequences", title: "Sequences", view: v}, err
}

type sequenceList struct {
	Rows []sequenceRow
	Look bool // whether the person may see keys
	Cut  bool // there may be more
	More string
}

type sequenceRow struct {
	parked.Parked
	Name, State, Link string // Name is the key
}

// keyOf is the head of a key. A message without one is a sequence by itself.
func keyOf(p parked.Parked) string {
	if p.Key == nil {
		return ""
	}
	return *p.Key
}

type sequencePage struct {
	operate.SequenceData
	Name, State    string
	Failed         operate.ParkedData // the first message, with its failure
	Look           bool
	More           int // messages that are not shown
	Actions        []action
	List, OnRecord string
}

// sequence shows the messages of a key that wait, and asks what is to be done about the first.
func (c *console) sequence(r *request) (answer, error) {
	seq, err := strconv.ParseInt(r.HTTP.PathValue("seq"), 10, 64)
	if err != nil || seq <= 0 {
		return answer{}, noPage()
	}
	first, all, err := c.desk.Sequence(r.HTTP.Context(), seq, parkedShown)
	if err != nil {
		return answer{}, err
	}
	v := sequencePage{SequenceData: c.desk.SequenceOf(r.who(""), first, all), State: operate.Waiting(first),
		Look: r.Person.Right >= operate.Look, More: first.Messages - len(all),
		List: r.link("sequences", nil), OnRecord: r.link("audit", map[string][]string{"kind": {"sequence"}})}
	if v.Name = keyOf(v.Parked); len(v.Waiting) > 0 {
		v.Failed = v.Waiting[0]
	}
	if first.Decided == "" {
		for _, s := range sequenceSteps {
			if c.can(r.Person, s.route) && (s.what != parked.Release || first.Held) {
				v.Actions = append(v.Actions, action{s.Steering, r.link("sequences/"+id(first.Seq)+"/"+s.Name, nil)})
			}
		}
	}
	return answer{page: "sequence", title: "Messages of a key that wait", view: v}, nil
}

// sequenceStep is what a person can do about the first message of a key.
type sequenceStep struct {
	operate.Steering
	route string
	what  parked.Decision
}

var sequenceSteps = []sequenceStep{
	{operate.Steering{Name: "release", Label: "Release", Hint: "It runs again, in its place and with its delays. If it " +
		"fails for good once more, it is held again."}, "release", parked.Release},
	{operate.Steering{Name: "skip", Label: "Skip", Hint: "It becomes a dead letter, without a call of its handler. The " +
		"next message of the key goes on. A redrive of the letter comes behind what took effect meanwhile.", Danger: true},
		"skip", parked.Skip},
	{operate.Steering{Name: "discard", Label: "Discard", Hint: "It has no effect, and becomes no letter. The next message " +
		"of the key goes on. This cannot be undone.", Danger: true}, "drop", parked.Discard},
}

// decideSequence makes the route that writes a decision down, and goes to the key.
func decideSequence(s sequenceStep) handler {
	return func(c *console, r *request) (answer, error) {
		seq, err := strconv.ParseInt(r.HTTP.PathValue("seq"), 10, 64)
		if err != nil || seq <= 0 {
			return answer{}, noPage()
		}
		at := "sequences/" + id(seq)
		return c.perform(r, action{s.Steering, r.link(at+"/"+s.Name, nil)}, r.link(at, nil), func(who operate.Person, _ float64) error {
			_, err := c.desk.DecideSequence(r.HTTP.Context(), who, seq, s.what, false)
			return err
		})
	}
}
