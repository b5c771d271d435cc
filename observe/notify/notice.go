package notify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/observe/notify/internal/ledger"
)

// Kind is what a notice is about.
type Kind string

const (
	// NewCause says that a letter of a cause arrived, of which none had arrived for a whole hour, and which is
	// not snoozed.
	NewCause Kind = "new_cause"
	// Threshold says that Config.Threshold letters of a cause wait.
	Threshold Kind = "threshold"
	// OldestLetter says that the letter that waits longest is older than Config.OldestAge.
	OldestLetter Kind = "oldest_letter"
	// CauseGrew says that more than 4 times as many letters of a snoozed cause arrive in an hour as in the hour before
	// the snooze, and at least 10. It is over when the cause is snoozed again, or the time of the snooze ends.
	CauseGrew Kind = "cause_grew"
	// CampaignStopped says that a campaign stopped itself, because too many letters failed again, or because its topic
	// refused them.
	CampaignStopped Kind = "campaign_stopped"
	// BreakerOpen says that a breaker holds the messages of a handler.
	BreakerOpen Kind = "breaker_open"
	// StoreUnavailable says that a store or a publisher of the channel itself, or the database of the notices, does not
	// answer.
	StoreUnavailable Kind = "store_unavailable"
	// SequenceHeld says that the messages of a key stand until a person decides about the first one. Notice.Subject is
	// the key.
	SequenceHeld Kind = "sequence_held"
	// SequenceLate says that a parked message of a partition is due for more than a minute, and nothing begins it: the
	// partition has no owner, or its handler hangs.
	SequenceLate Kind = "sequence_late"
	// Unplaced says that all publishers refused a letter. Its message was requeued.
	Unplaced Kind = "unplaced"
	// ManyNotices says that more notices of one kind were due than 10 within a minute. Those are counted and
	// not told one by one. Notice.Subject is their kind.
	ManyNotices Kind = "many_notices"
)

// Kinds are all kinds.
var Kinds = []Kind{NewCause, Threshold, OldestLetter, CauseGrew, CampaignStopped, BreakerOpen, StoreUnavailable,
	SequenceHeld, SequenceLate, Unplaced, ManyNotices}

// titles are those of notices that are new, and of summaries: Count is %[1]d, Subject %[2]s, and the place %[3]s. A kind
// without a title for summaries is of a state, whose end is told.
var titles = map[Kind]struct{ began, summary string }{
	NewCause:         {"Dead letter of a new cause%[3]s", "%[1]d more dead letters of a cause%[3]s"},
	Threshold:        {"%[1]d dead letters of a cause wait%[3]s", ""},
	OldestLetter:     {"A dead letter waits for too long%[3]s", ""},
	CauseGrew:        {"A snoozed cause grew%[3]s", ""},
	CampaignStopped:  {"Campaign %[2]s stopped itself", ""},
	BreakerOpen:      {"The breaker holds messages%[3]s", ""},
	StoreUnavailable: {"Unavailable: %[2]s", ""},
	SequenceHeld:     {"The messages of a key are held%[3]s", ""},
	SequenceLate:     {"Parked messages are late%[3]s", ""},
	Unplaced:         {"A dead letter could not be placed%[3]s", "%[1]d more dead letters could not be placed%[3]s"},
	ManyNotices:      {"More notices of %[2]s than are told one by one", "%[1]d more events of %[2]s, not told one by one"},
}

// lasts reports whether a kind is of a state, whose end is told.
func lasts(kind string) bool { return titles[Kind(kind)].summary == "" }

// Status is what happened to what a notice is about.
type Status string

const (
	// StatusNew is the first notice of a subject.
	StatusNew = Status(ledger.Began)
	// StatusSummary counts what happened since the notice before.
	StatusSummary = Status(ledger.Counted)
	// StatusResolved says that what a StatusNew notice said is over.
	StatusResolved = Status(ledger.Ended)
)

// Notice is what a Sink sends. Its texts come from messages and errors in part. They are redacted, and have no control
// characters and no marks of direction. As JSON it is the body that docs/notices.md describes.
type Notice struct {
	// ID is the same if the notice is sent again: a receiver that keeps IDs can drop the second.
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	Status Status `json:"status"`
	// Title is the notice in one line.
	Title string `json:"title"`
	// Service is spillway.Config.Service, and Instance the process that sends.
	Service  string `json:"service,omitempty"`
	Instance string `json:"instance"`
	// Subject is what the notice is about, if that is not a cause or a handler: a store, a campaign, a scope, or a kind
	// of notices.
	Subject string `json:"subject,omitempty"`
	// Cause is the hash of the cause, as letters.Group.Cause has it.
	Cause   string `json:"cause,omitempty"`
	Topic   string `json:"topic,omitempty"`
	Handler string `json:"handler,omitempty"`
	Class   string `json:"class,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Count is how often it happened since the notice before, and Total how often since the StatusNew notice. Of a
	// Threshold, and of CauseGrew, both are the number of letters that wait.
	Count int64 `json:"count"`
	Total int64 `json:"total"`
	// First and Last are when it happened first and last, by the clocks of the processes that saw it.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Description says more, in at most 1,000 characters: of a letter the text of its error.
	Description string `json:"description,omitempty"`
	// Link is what Config.Link returned.
	Link string `json:"link,omitempty"`
	// Missed is the number of notices before this one that did not reach the Sink.
	Missed int `json:"missed,omitempty"`
}

// Sink sends a notice. A Sink is called with one notice at a time. It must end with ctx. Its error is logged, and has
// the notice sent again later, for an hour; classify.RetryAfter on the error says when. An error that is marked
// with classify.Permanent gives the notice up at once. A panic is an error.
type Sink func(ctx context.Context, n Notice) error

// title says what happened in a line.
func (n *Notice) title() string {
	format := titles[n.Kind].began
	switch n.Status {
	case StatusSummary:
		format = titles[n.Kind].summary
	case StatusResolved:
		format = "Resolved: " + format
	}
	return fmt.Sprintf(format, n.Count, n.Subject, n.place())
}

// place is where it happened: ": topic, handler, reason".
func (n *Notice) place() string {
	parts := slices.DeleteFunc([]string{n.Topic, n.Handler, n.Reason}, func(part string) bool { return part == "" })
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// about is what a notice says of its subject, as the ledger keeps it: another instance may have to say it.
type about struct {
	Subject, Cause, Topic, Handler, Class, Reason, Description string `json:",omitempty"`
	Waiting                                                    int64  `json:",omitempty"` // letters of a Threshold, or a CauseGrew
}

// text is about as the ledger keeps it. Texts are masked, clean and short from here on, in this order: half of a secret
// has no shape.
func (n *Notifier) text(a about) string {
	for _, name := range []*string{&a.Subject, &a.Topic, &a.Handler, &a.Reason} { // cause and class are our own
		*name = line(n.config.Privacy.Text(*name), maxName)
	}
	a.Description = line(n.config.Privacy.Text(a.Description), maxDescription)
	text, _ := json.Marshal(a) // which cannot fail: it is strings and a number
	return string(text)
}

// notice is what a telling says.
func (n *Notifier) notice(t ledger.Telling) Notice {
	var a about
	_ = json.Unmarshal([]byte(t.About), &a) // a damaged row has no more than its kind
	notice := Notice{
		Kind: Kind(t.Kind), Status: Status(t.Step), Service: n.config.Service, Instance: line(n.instance, maxName),
		Subject: line(a.Subject, maxName), Cause: line(a.Cause, maxName), Topic: line(a.Topic, maxName),
		Handler: line(a.Handler, maxName), Class: line(a.Class, maxName), Reason: line(a.Reason, maxName),
		Description: line(a.Description, maxDescription), Count: t.Count, Total: t.Total, First: t.First.UTC(),
		Last: t.Last.UTC(),
	}
	if notice.Kind == ManyNotices {
		notice.Subject = line(t.Subject, maxName)
	}
	if a.Waiting > 0 {
		notice.Count, notice.Total = a.Waiting, a.Waiting
	}
	var id []byte
	for _, part := range []string{n.config.Service, t.Kind, t.Subject, strconv.FormatInt(t.Opened, 10),
		strconv.FormatInt(t.Number, 10)} {
		id = metadatacodec.Append(id, part)
	}
	sum := sha256.Sum256(id)
	notice.ID = hex.EncodeToString(sum[:16])
	notice.Title = line(notice.title(), maxName*3)
	notice.Link = n.link(notice)
	return notice
}

// link is what Config.Link says, if that can be an address in a chat.
func (n *Notifier) link(notice Notice) (link string) {
	if n.config.Link == nil {
		return ""
	}
	if err := safecall.Call("notify: Config.Link",
		func() error { link = n.config.Link(notice); return nil }); err != nil {
		eventNoticeLinkPanicked.Write(n.logger(), err, nil)
		return ""
	}
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || len(link) > 2000 {
		return ""
	}
	return u.String()
}

const (
	maxName        = 200  // characters
	maxDescription = 1000 // characters
	maxMasked      = 64 << 10
)

// line makes text that people can read in one line of any terminal or chat, of at most n characters: without control
// characters, marks of direction and what is invisible.
func line(text string, n int) string {
	text = boundedtext.Text(text, maxMasked)
	var b strings.Builder
	count, space := 0, true // no space at the begin
	for _, r := range text {
		switch {
		case unicode.IsSpace(r) || r == '\u0085':
			if space {
				continue
			}
			r = ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r) ||
			unicode.Is(unicode.Variation_Selector, r):
			r = unicode.ReplacementChar
		}
		space = r == ' '
		if count++; count > n {
			b.WriteRune('…')
			break
		}
		b.WriteRune(r)
	}
	return strings.TrimRight(b.String(), " ")
}

// maxPending is the number of subjects that wait for one round. Reports of further subjects are counted by their kind.
const maxPending = 1000

// pending is what happened since the last round, summed up by its subject: it is bounded, however much happens.
type pending struct {
	wake chan struct{}

	mu      sync.Mutex
	reports map[ledger.Key]*ledger.Report
}

func newPending() *pending {
	return &pending{wake: make(chan struct{}, 1), reports: map[ledger.Key]*ledger.Report{}}
}

// add counts a report. It never waits for anything but other calls of add. say is called once for each subject and
// round.
func (p *pending) add(key ledger.Key, n int64, first, last time.Time, say func() string) {
	r := ledger.Report{Key: key, N: n, First: first, Last: last}
	if p.merge(r, false) {
		return
	}
	r.About = say() // outside of the lock: masks may be slow
	p.merge(r, true)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// merge adds a report to one of its subject. Without one it returns false, or adds the report.
func (p *pending) merge(r ledger.Report, fresh bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.reports[r.Key]
	if known == nil && len(p.reports) >= maxPending {
		r.Key, r.About = ledger.Key{Kind: string(ManyNotices), Subject: r.Kind}, ""
		r.N = max(1, r.N)
		known, fresh = p.reports[r.Key], true
	}
	if known == nil {
		if fresh {
			p.reports[r.Key] = &r
		}
		return fresh
	}
	known.N += r.N
	if r.First.Before(known.First) {
		known.First = r.First
	}
	if r.Last.After(known.Last) {
		known.Last = r.Last
	}
	return true
}

// take returns what is pending, and empties it.
func (p *pending) take() []*ledger.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*ledger.Report, 0, len(p.reports))
	for _, r := range p.reports {
		all = append(all, r)
	}
	clear(p.reports)
	return all
}

// requeue returns what could not be written.
func (p *pending) requeue(reports []*ledger.Report) {
	for _, r := range reports {
		p.merge(*r, true)
	}
}
