package campaigns

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	// DefaultStopAt is the default of Request.StopAt.
	DefaultStopAt = 0.2
	// DefaultStopAfter is the default of Request.StopAfter.
	DefaultStopAfter = 50
	// DefaultCanaryWait is the default of Request.CanaryWait.
	DefaultCanaryWait = time.Minute
	// MaxSeqs is the largest number of letters that Request.Seqs lists.
	MaxSeqs = 1000
	// MaxRate is the greatest rate in letters per second.
	MaxRate = 1e6

	minRate        = 0.001
	maxConcurrency = 256
	maxText        = 1 << 10 // bytes of a name or a reason
	maxRequest     = 1 << 20 // bytes of a request as JSON
)

// Act names who does something, and why. Both fields are required, and are kept with the campaign.
type Act struct {
	// By names the person or program, in at most 1 KiB. Names are not verified.
	By string `json:"by"`
	// Reason is for those who read the record later, in at most 1 KiB.
	Reason string `json:"reason"`
	// Key names a call of Pause, Resume, Cancel, SetRate or Approve that a program may send twice. If the campaign's
	// record has it, nothing is changed, and the call returns the campaign as it stands. It has 16 to 64 letters,
	// digits and hyphens. Start has Request.ID for that. Default: none.
	Key string `json:"-"`
}

// Request says which letters a campaign redrives, where to, and how. Filter or Seqs choose the letters; all other
// fields have a default. A Request can be kept as JSON.
type Request struct {
	// ID is the id of the campaign, of a form that may be sent twice: if the service has a campaign of this ID, Start
	// returns it and starts none. It has 16 to 64 letters, digits and hyphens. Default: a new UUID.
	ID string `json:"id,omitempty"`

	// Filter chooses the letters. The zero value chooses all letters that wait. Discarded and erased letters are left
	// out, whatever Filter.Statuses says, and it must name another state. Filter.Limit and Filter.NewestFirst are not
	// possible.
	Filter letters.Filter `json:"filter"`
	// Seqs are the letters, by Letter.Seq, at most MaxSeqs of them. Of Filter only Statuses may then be set.
	Seqs []int64 `json:"seqs,omitempty"`
	// Max is the largest number of letters: those that arrived first. Default: all.
	Max int `json:"max,omitempty"`

	// To is the topic that all letters go to. It must be in Config.Allow. Default: each letter's origin topic.
	To string `json:"to,omitempty"`
	// FirstStage sends letters to the first retry stage of their handler, as Config.ReentryTopic says. Default: false.
	FirstStage bool `json:"first_stage,omitempty"`
	// HandleAgain lets the handlers run again for letters of reason output_undeliverable: their messages are applied,
	// and a redrive publishes the recorded outputs. With HandleAgain the receiver's keys of these messages are removed,
	// so that the handler makes new outputs. What it wrote before is written a second time. The receiver's keys must be
	// in the letters' database, and be the ids of the messages. Other letters are redriven as always. Default: false.
	HandleAgain bool `json:"handle_again,omitempty"`
	// Edit changes the messages on their way. Default: none, each message is as it first arrived.
	Edit *Edit `json:"edit,omitempty"`

	// Rate is the number of letters per second, of all workers together. SetRate changes it. Default: no limit.
	Rate float64 `json:"rate,omitempty"`
	// Concurrency is the number of letters that one worker publishes at the same time, at most 256. Default: 1, which
	// keeps the order.
	Concurrency int `json:"concurrency,omitempty"`
	// NotBefore is when the first letter may be published, by the database's clock. Default: at once.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Canary is the number of letters that are redriven first, at most Max. The campaign goes on if at most the share
	// StopAt of them fails again. Default: none.
	Canary int `json:"canary,omitempty"`
	// CanaryWait is how long the campaign waits for what becomes of the canary. Letters that are not heard of by then
	// count as not failed. Default: DefaultCanaryWait, 1 min.
	CanaryWait time.Duration `json:"canary_wait,omitempty"`
	// StopAt is the share of letters that fail again above which the campaign pauses. 1 means never. Default:
	// DefaultStopAt, 0.2. It is the share of those heard of; if no success is heard of, it is the share of all redriven
	// letters.
	StopAt float64 `json:"stop_at,omitempty"`
	// StopAfter is the number of letters from which StopAt counts. Default: DefaultStopAfter, 50.
	StopAfter int `json:"stop_after,omitempty"`
	// ResumeAfter is how long after the publisher refused letters the campaign resumes by itself. The time doubles with
	// each pause, at most tenfold. Default: 0, the campaign waits for Resume.
	ResumeAfter time.Duration `json:"resume_after,omitempty"`
	// Approval asks for Approve by a second person. Default: if the campaign has more letters than Config.ApproveOver.
	Approval bool `json:"approval,omitempty"`

	Act

	policy string // that asks for it
}

func (r *Request) setDefaults() {
	if r.Concurrency == 0 {
		r.Concurrency = 1
	}
	if r.StopAt == 0 {
		r.StopAt = DefaultStopAt
	}
	if r.StopAfter == 0 {
		r.StopAfter = DefaultStopAfter
	}
	if r.CanaryWait == 0 {
		r.CanaryWait = DefaultCanaryWait
	}
	if len(r.Seqs) > 0 {
		r.Seqs = slices.Compact(slices.Sorted(slices.Values(r.Seqs)))
	}
}

// validate returns an error that names the field, for a request that no campaign can have.
func (r *Request) validate() error {
	if r.ID != "" && !isID(r.ID) {
		return fmt.Errorf("campaigns: Request.ID is %q: it must have 16 to 64 letters, digits and hyphens, such as a UUID",
			logged(r.ID))
	}
	if err := r.Filter.Validate(); err != nil {
		return fmt.Errorf("campaigns: Request.Filter: %w", err)
	}
	if f := r.Filter; f.Limit != 0 || f.NewestFirst {
		return errors.New("campaigns: Request.Filter.Limit and NewestFirst are for lists: leave them out, and use " +
			"Request.Max")
	}
	if s := r.Filter.Statuses; len(s) > 0 && !slices.ContainsFunc(s, redrivable) {
		return fmt.Errorf("campaigns: Request.Filter.Statuses is %q: %s", s,
			notRedriven(slices.Contains(s, letters.StatusDiscarded)))
	}
	if len(r.Seqs) > 0 {
		if f := (letters.Filter{Statuses: r.Filter.Statuses}); !reflect.DeepEqual(f, r.Filter) {
			return errors.New("campaigns: Request.Seqs and Request.Filter are both set: use one; of the filter only Statuses may stay")
		}
		if len(r.Seqs) > MaxSeqs {
			return fmt.Errorf("campaigns: Request.Seqs lists %d letters, at most %d are possible: use Request.Filter",
				len(r.Seqs), MaxSeqs)
		}
		if r.Seqs[0] < 1 {
			return fmt.Errorf("campaigns: Request.Seqs has %d: a Seq is 1 or more", r.Seqs[0])
		}
	}
	if r.To != "" && r.FirstStage {
		return errors.New("campaigns: Request.To and Request.FirstStage are both set: set one")
	}
	if err := checkRate(r.Rate); err != nil {
		return err
	}
	switch {
	case r.Max < 0 || r.Canary < 0 || r.StopAfter < 0:
		return fmt.Errorf("campaigns: Request.Max (%d), Canary (%d) and StopAfter (%d) must not be negative", r.Max, r.Canary,
			r.StopAfter)
	case r.Max > 0 && r.Canary > r.Max:
		return fmt.Errorf("campaigns: Request.Canary is %d and Max is %d: there would be no letters behind the canary; set a "+
			"smaller Canary, or a greater Max", r.Canary, r.Max)
	case r.Concurrency < 0 || r.Concurrency > maxConcurrency:
		return fmt.Errorf("campaigns: Request.Concurrency is %d: it must be 1 to %d", r.Concurrency, maxConcurrency)
	case !(r.StopAt >= 0 && r.StopAt <= 1):
		return fmt.Errorf("campaigns: Request.StopAt is %v: it is a share, from 0 to 1", r.StopAt)
	case r.CanaryWait < 0 || r.ResumeAfter < 0:
		return fmt.Errorf("campaigns: Request.CanaryWait (%s) and ResumeAfter (%s) must not be negative", r.CanaryWait,
			r.ResumeAfter)
	}
	if r.Edit != nil {
		if err := r.Edit.Validate(); err != nil {
			return fmt.Errorf("campaigns: Request.Edit: %w", err)
		}
		if r.Edit.replaces() && len(r.Seqs) != 1 {
			return fmt.Errorf("campaigns: Request.Edit.Payload is set, and Request.Seqs names %d letters: name the one whose "+
				"payload it is", len(r.Seqs))
		}
	}
	return nil
}

// notRedriven says of letters that no redrive takes what can be done.
func notRedriven(discarded bool) string {
	if discarded {
		return "discarded letters are not redriven: restore them first, with redrive restore, the console or Store.MarkAll"
	}
	return "erased letters have no message any more: name letters of another state"
}

// isID reports whether a text can be the id of a campaign.
func isID(text string) bool {
	return len(text) >= 16 && len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

func checkRate(rate float64) error {
	if rate != 0 && !(rate >= minRate && rate <= MaxRate) || math.IsNaN(rate) {
		return fmt.Errorf("campaigns: the rate is %v letters per second: it must be %v to %v; 0 means no limit", rate,
			minRate, MaxRate)
	}
	return nil
}

func (a Act) validate() error {
	for field, text := range map[string]string{"By": a.By, "Reason": a.Reason} {
		if strings.TrimSpace(text) == "" {
			return fmt.Errorf("campaigns: Act.%s is empty: say who does it, and why; both are kept on record", field)
		}
		if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return fmt.Errorf("campaigns: Act.%s has %d bytes: it must be text of at most %d", field, len(text), maxText)
		}
	}
	if a.Key != "" && !isID(a.Key) {
		return fmt.Errorf("campaigns: Act.Key is %q: it must have 16 to 64 letters, digits and hyphens, such as a UUID",
			logged(a.Key))
	}
	return nil
}

// encoded is the request as a row keeps it. What JSON would change is an error.
func (r *Request) encoded() (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("campaigns: keep the request as JSON: %w", err)
	}
	if len(text) > maxRequest {
		return "", fmt.Errorf("campaigns: the request has %d bytes as JSON, at most %d are possible: choose by fewer values",
			len(text), maxRequest)
	}
	again, err := decoded(string(text))
	if err != nil {
		return "", err
	}
	same, err := json.Marshal(again)
	if err != nil || string(same) != string(text) || !r.isUTF8() {
		return "", errors.New("campaigns: the request has a text that is not UTF-8, which no record can keep: choose the " +
			"letters by Seqs")
	}
	return string(text), nil
}

// isUTF8 reports whether JSON keeps the texts of the request as they are.
func (r *Request) isUTF8() bool {
	f := r.Filter
	all := slices.Concat(f.Topics, f.NotTopics, f.DeadLetterTopics, f.Handlers, f.Reasons, f.Types, f.Causes, f.RedriveIDs,
		f.IDs, []string{f.Description, f.StackHash, r.To})
	return !slices.ContainsFunc(all, func(s string) bool { return !utf8.ValidString(s) })
}

func decoded(text string) (r Request, err error) {
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("campaigns: read a request: %w", err)
	}
	return r, nil
}

// wrong is an error that is ErrRequest.
type wrong struct{ error }

func (w wrong) Is(target error) bool { return target == ErrRequest }

func (w wrong) Unwrap() error { return w.error }
