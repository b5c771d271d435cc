package console

import (
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// planView is what a campaign would do.
type planView struct {
	Letters, Quarantine   int
	Nothing               bool // no letter of the selection can be redriven, and none is left out for a reason
	Part                  bool // there are more letters than the dry run reads
	Causes, Ages, Targets []bar
	LeftOut               []leftOutLine
	Sample                []sampleLine
	Takes                 string
	NeedsApproval         bool
	Refused               int // letters of the sample that the edit does not fit
	Differences           bool
}

// bar is a row of a histogram.
type bar struct {
	Name, More string // a value of a message, and others of its cause
	Plain      bool   // Name is the console's own text
	Letters    int
	All        int
}

// leftOutLine says why letters are not taken.
type leftOutLine struct {
	Letters int
	Why     string
	Name    string // the topic, or the campaign
	Link    string // to the campaign
}

// sampleLine is a letter of the sample.
type sampleLine struct {
	Link, ID, Topic, Handler, Description string
	FirstFailed                           time.Time
	Difference                            *operate.Difference
}

func (c *console) planView(r *request, p operate.DryRun, part bool) *planView {
	v := &planView{Letters: p.Letters, Quarantine: p.Quarantine, Part: part, NeedsApproval: p.NeedsApproval,
		LeftOut: c.leftOut(r, p.LeftOut)}
	v.Nothing = p.Letters == 0 && len(p.LeftOut) == 0
	if p.Takes > 0 && !part {
		v.Takes = age(p.Takes)
	}
	for _, one := range p.Causes {
		v.Causes = append(v.Causes,
			bar{Name: one.Reason, More: strings.TrimSpace(one.Handler + " " + one.Description), Letters: one.Letters,
				All: p.Letters})
	}
	for _, one := range p.Ages {
		name := "longer ago"
		if one.UpTo > 0 {
			name = say("up to %s ago", age(time.Duration(one.UpTo)))
		}
		v.Ages = append(v.Ages, bar{Name: name, Plain: true, Letters: one.Letters, All: p.Letters})
	}
	for _, one := range p.Targets {
		v.Targets = append(v.Targets, bar{Name: one.Topic, Letters: one.Letters, All: p.Letters})
	}
	for _, one := range p.Sample {
		line := sampleLine{
			Link: r.link("letters/"+id(one.Seq), nil), ID: one.ID, Topic: one.Topic, Handler: one.Handler,
			Description: one.Description, FirstFailed: one.FirstFailed, Difference: operate.DifferenceOf(one.Edited, c.desk.Masks),
		}
		if d := line.Difference; d != nil {
			v.Differences = true
			if d.Refused != "" {
				v.Refused++
			}
		}
		v.Sample = append(v.Sample, line)
	}
	return v
}

// leftOut says which letters a campaign does not take.
func (c *console) leftOut(r *request, out []campaigns.LeftOut) (lines []leftOutLine) {
	for _, one := range out {
		why, about := operate.LeftOutWords(one)
		line := leftOutLine{Letters: one.Letters, Why: why, Name: about}
		if one.Why == campaigns.InCampaign && about != "" {
			line.Link = r.link("campaigns/"+about, nil)
		}
		lines = append(lines, line)
	}
	return lines
}
