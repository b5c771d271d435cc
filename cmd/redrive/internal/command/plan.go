package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// plan prints what a campaign would do.
func (a *app) plan(p operate.DryRun) error {
	if a.json {
		for i := range p.Sample {
			p.Sample[i].Edited = p.Sample[i].Edited.Masked(a.privacy)
		}
		return a.screen.JSON(operate.DataOfPlan(p, false))
	}
	line := "would redrive " + several(p.Letters, "letter")
	if p.Takes > 0 {
		line += ", in " + rounded(p.Takes)
	}
	a.screen.Styled(screen.Bold, "%s", line)
	if p.Quarantine > 0 {
		a.screen.Line("would quarantine %d of them, which failed again too often", p.Quarantine)
	}
	for _, left := range p.LeftOut {
		a.screen.Line("would leave out %s", leftOut(left))
	}
	if p.NeedsApproval {
		a.screen.Line("would wait until a second person approves")
	}
	if p.Letters == 0 {
		return none("nothing would be redriven")
	}
	a.histogram("to", p.Letters, len(p.Targets), func(i int) (string, int) {
		return p.Targets[i].Topic, p.Targets[i].Letters
	})
	a.histogram("cause", p.Letters, len(p.Causes), func(i int) (string, int) {
		c := p.Causes[i]
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Handler, c.Reason, c.Description)), c.Letters
	})
	a.histogram("first failed", p.Letters, len(p.Ages), func(i int) (string, int) {
		if p.Ages[i].UpTo == 0 {
			return "earlier", p.Ages[i].Letters
		}
		return "up to " + p.Ages[i].UpTo.String() + " ago", p.Ages[i].Letters
	})
	a.screen.Head("sample")
	t := &screen.Table{Columns: []screen.Column{
		{Name: "SEQ", Right: true}, {Name: "FIRST FAILED", Style: screen.Dim, Drop: 1}, {Name: "TOPIC", Min: 8},
		{Name: "HANDLER", Min: 8, Drop: 2}, {Name: "ID", Min: 36},
		{Name: "DESCRIPTION", Min: 10},
	}}
	for _, l := range p.Sample {
		t.Row(l.Seq, a.when(l.FirstFailed), l.Topic, l.Handler, l.ID, l.Description)
	}
	a.screen.Table(t)
	for _, l := range p.Sample {
		if l.Edited != nil {
			a.screen.Head(fmt.Sprintf("edit of SEQ %d", l.Seq))
			a.diff(l.Edited)
		}
	}
	return nil
}

// histogram prints counts with bars.
func (a *app) histogram(name string, all, n int, at func(i int) (string, int)) {
	const most, length = 10, 20
	a.screen.Head(name)
	t := &screen.Table{Columns: []screen.Column{{Name: "LETTERS", Right: true}, {Name: "", Style: screen.Blue, Drop: 1},
		{Name: strings.ToUpper(name), Min: 20}}}
	rest := 0
	for i := range n {
		label, count := at(i)
		if i >= most {
			rest += count
			continue
		}
		t.Row(count, strings.Repeat("█", max(1, count*length/max(all, 1))), label)
	}
	if rest > 0 {
		t.Row(rest, "", "others")
	}
	a.screen.Table(t)
}

// noLetters gives an error of Start its exit code.
func noLetters(err error) error {
	if errors.Is(err, campaigns.ErrNoLetters) {
		return coded{err, exitNone}
	}
	return err
}
