package command

import (
	"time"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const jsonHelp = `With --json a command prints one object a line. Names are never changed or removed; new ones may come. Times are
RFC 3339 in UTC. Counts are numbers. What is empty is left out, apart from counts. Characters that a terminal obeys are
\u escapes, so a program reads the same text. Bytes that are no text have U+FFFD in their place: redrive export is lossless.

  causes    cause count arrived last_minute first_failed_at last_failed_at dead_letter_topic topic handler class reason type stack_hash
            example description
  list      seq status seen stored_at id dead_letter_topic topic handler class reason type description stack_hash cause
            first_failed_at last_failed_at marked_at marked_by marked_reason redrive_id leased_by leased_until bytes seal_key
  show      the same, and: attempts redrives metadata stack history life partition offset key group node payload or payload_b64; sealed, if
            the letter did not open, and why
  audit     number at kind seq id by reason redrive_id detail
  doctor    check ok detail
  export    see redrive export --help
  purge     chosen purged left; with --rule for each rule: rule purged dry_run
  erase     selector letters letters_in_hand delayed delayed_in_hand keys keys_in_hand texts campaigns_open dry_run
  unlease   broken
  reseal    key resealed closed why left; with --dry-run for each key: key letters, and current for the key of new letters
  discard   chosen discarded left
  restore   chosen restored left
  import    imported skipped
  campaigns a campaign as package campaigns has it; with an ID also: events left_behind
  redrive   with --dry-run a plan as package campaigns has it; else a campaign for each change
  breaker   handler scope instance state reason cause actor since
  drain     id taken redriven quarantined refused parked failed sealed; with --dry-run a plan as package redrive has it`

// causeView is a cause for programs.
type causeView struct {
	Cause           string `json:"cause"`
	Count           int    `json:"count"`
	Arrived         int    `json:"arrived"`
	LastMinute      int    `json:"last_minute"`
	FirstFailedAt   string `json:"first_failed_at,omitempty"`
	LastFailedAt    string `json:"last_failed_at,omitempty"`
	DeadLetterTopic string `json:"dead_letter_topic,omitempty"`
	Topic           string `json:"topic,omitempty"`
	Handler         string `json:"handler,omitempty"`
	Class           string `json:"class"`
	Reason          string `json:"reason,omitempty"`
	Type            string `json:"type,omitempty"`
	StackHash       string `json:"stack_hash,omitempty"`
	Example         int64  `json:"example"`
	Description     string `json:"description,omitempty"`
}

func viewOfCause(g letters.Group) causeView {
	return causeView{
		Cause: g.Cause, Count: g.Count, Arrived: g.Arrived, LastMinute: g.LastMinute, FirstFailedAt: stamp(g.FirstFailedAt),
		LastFailedAt: stamp(g.LastFailedAt), DeadLetterTopic: g.DeadLetterTopic, Topic: g.Topic, Handler: g.Handler,
		Class: g.Class.String(), Reason: g.Reason, Type: g.Type, StackHash: g.StackHash, Example: g.Example,
		Description: g.Description,
	}
}

// letterView is a letter for programs.
type letterView struct {
	Seq             int64  `json:"seq"`
	Status          string `json:"status"`
	Seen            int    `json:"seen"`
	StoredAt        string `json:"stored_at,omitempty"`
	ID              string `json:"id,omitempty"`
	Cause           string `json:"cause,omitempty"`
	DeadLetterTopic string `json:"dead_letter_topic,omitempty"`
	Topic           string `json:"topic,omitempty"`
	Handler         string `json:"handler,omitempty"`
	Class           string `json:"class"`
	Reason          string `json:"reason,omitempty"`
	Type            string `json:"type,omitempty"`
	Description     string `json:"description,omitempty"`
	StackHash       string `json:"stack_hash,omitempty"`
	FirstFailedAt   string `json:"first_failed_at,omitempty"`
	LastFailedAt    string `json:"last_failed_at,omitempty"`
	MarkedAt        string `json:"marked_at,omitempty"`
	MarkedBy        string `json:"marked_by,omitempty"`
	MarkedReason    string `json:"marked_reason,omitempty"`
	RedriveID       string `json:"redrive_id,omitempty"`
	LeasedBy        string `json:"leased_by,omitempty"`
	LeasedUntil     string `json:"leased_until,omitempty"`
	Bytes           int    `json:"bytes"`
	SealKey         string `json:"seal_key,omitempty"`
}

func viewOfHead(h letters.Head) letterView {
	return letterView{
		Seq: h.Seq, Status: string(h.Status), Seen: h.Seen, StoredAt: stamp(h.StoredAt), ID: h.MessageID, Cause: h.Cause,
		DeadLetterTopic: h.DeadLetterTopic, Topic: h.Topic, Handler: h.Handler, Class: h.Class.String(), Reason: h.Reason,
		Type: h.Type, Description: h.Description, StackHash: h.StackHash, FirstFailedAt: stamp(h.FirstFailedAt),
		LastFailedAt: stamp(h.LastFailedAt), MarkedAt: stamp(h.Marked.At), MarkedBy: h.Marked.By,
		MarkedReason: h.Marked.Reason, RedriveID: h.Marked.RedriveID, LeasedBy: h.LeasedBy, LeasedUntil: stamp(h.LeasedUntil),
		Bytes: h.Size, SealKey: h.SealKey,
	}
}

func viewOf(l letters.Letter) letterView {
	return letterView{
		Seq: l.Seq, Status: string(l.Status), Seen: l.Seen, StoredAt: stamp(l.StoredAt), ID: l.Original.UUID, Cause: l.Cause,
		DeadLetterTopic: l.Topic, Topic: l.Origin.Topic, Handler: l.Origin.Handler, Class: l.Failure.Class.String(),
		Reason: l.Failure.Reason, Type: l.Failure.Type, Description: l.Failure.Description, StackHash: l.Failure.StackHash,
		FirstFailedAt: stamp(l.Failure.FirstFailedAt), LastFailedAt: stamp(l.Failure.LastFailedAt),
		MarkedAt: stamp(l.Marked.At), MarkedBy: l.Marked.By, MarkedReason: l.Marked.Reason, RedriveID: l.Marked.RedriveID,
		Bytes: l.Size, SealKey: l.SealKey(),
	}
}

// wholeView is a letter with its payload.
type wholeView struct {
	letterView
	Attempts   int               `json:"attempts"`
	Redrives   int               `json:"redrives"`
	Partition  string            `json:"partition,omitempty"`
	Offset     string            `json:"offset,omitempty"`
	Key        string            `json:"key,omitempty"`
	Group      string            `json:"group,omitempty"`
	Node       string            `json:"node,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Stack      string            `json:"stack,omitempty"`
	History    []attemptView     `json:"history,omitempty"`
	Life       []eventView       `json:"life,omitempty"`
	Payload    *string           `json:"payload,omitempty"`
	PayloadB64 []byte            `json:"payload_b64,omitempty"`
	Sealed     string            `json:"sealed,omitempty"`
}

type attemptView struct {
	At    string `json:"at,omitempty"`
	Class string `json:"class"`
	Error string `json:"error,omitempty"`
}

func wholeViewOf(l letters.Letter, events []letters.Event) wholeView {
	v := wholeView{
		letterView: viewOf(l), Attempts: l.Failure.Attempts, Redrives: l.Redrive.Count, Partition: l.Origin.Partition,
		Offset: l.Origin.Offset, Key: string(l.Origin.Key), Group: l.Origin.ConsumerGroup, Node: l.Failure.Node,
		Metadata: l.Original.Metadata, Stack: l.Failure.Stack,
	}
	for _, attempt := range l.Failure.History {
		v.History = append(v.History, attemptView{stamp(attempt.At), attempt.Class.String(), attempt.Error})
	}
	for _, e := range events {
		v.Life = append(v.Life, viewOfEvent(e))
	}
	return v
}

// eventView is an entry of the record for programs.
type eventView struct {
	Number    int64  `json:"number,omitempty"`
	At        string `json:"at"`
	Kind      string `json:"kind"`
	Seq       int64  `json:"seq"`
	ID        string `json:"id,omitempty"`
	By        string `json:"by,omitempty"`
	Reason    string `json:"reason,omitempty"`
	RedriveID string `json:"redrive_id,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

func viewOfEvent(e letters.Event) eventView {
	return eventView{e.Number, stamp(e.At), string(e.Kind), e.Seq, e.MessageID, e.By, e.Reason, e.RedriveID, e.Detail}
}

// carry adds a payload.
func (v *wholeView) carry(payload []byte) {
	if utf8.Valid(payload) {
		text := string(payload)
		v.Payload = &text
		return
	}
	v.PayloadB64 = payload
}

// stamp is a time for programs.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// when is a time for people on a terminal, and for programs in a pipe.
func (a *app) when(t time.Time) string {
	if t.IsZero() || !a.screen.Terminal() {
		return stamp(t)
	}
	if a.screen.Narrow() {
		return t.UTC().Format("01-02 15:04:05")
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// styleOf marks what a status says.
func styleOf(s letters.Status) screen.Style {
	switch s {
	case letters.StatusWaiting:
		return screen.Amber
	case letters.StatusRedriven:
		return screen.Green
	case letters.StatusQuarantined:
		return screen.Red
	}
	return screen.Dim
}
