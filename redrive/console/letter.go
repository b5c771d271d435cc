package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/printable"
	"github.com/watermill-spillway/spillway/internal/operate/web"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// letter tells the story of one letter: what failed, what is in it, and what became of it.
func (c *console) letter(r *request) (answer, error) {
	l, err := c.oneLetter(r)
	if err != nil {
		return answer{}, err
	}
	v := letterPage{
		L: l, Look: r.Person.Right >= operate.Look, Closed: c.desk.Masks.Text(l.WhyClosed()),
		CauseLink: r.link("letters", operate.FilterValues(letters.Filter{Causes: []string{l.Cause},
			Statuses: letters.Statuses()})),
		Edits: l.Status != letters.StatusDiscarded && l.Status != letters.StatusErased, Base: r.base,
		Command: "redrive show " + id(l.Seq) + " --json",
	}
	this := operate.Selection{Seqs: []int64{l.Seq}}.Values()
	if l.Status == letters.StatusWaiting {
		v.Redrive = r.link("redrive", this)
	}
	if slices.Contains(discards.From, l.Status) {
		v.Discard = r.link(discards.Name, this)
	}
	if slices.Contains(restores.From, l.Status) {
		v.Restore = r.link(restores.Name, this)
	}
	v.Keys, v.Metadata = c.metadata(l, v.Look)
	if v.Look && l.Closed == nil && l.Status != letters.StatusErased {
		v.Payload = c.payloadOf(r, l)
	}
	events, err := c.desk.Store.History(r.HTTP.Context(), l.Seq)
	if err == nil {
		v.Line, v.Earlier = timeLine(r, l.Letter, events)
		v.Others, err = c.others(r, l)
	}
	if err == nil {
		var seq int64
		v.Behind, seq, err = c.desk.Behind(r.HTTP.Context(), l.Origin)
		v.BehindLink = r.link("sequences/"+id(seq), nil)
	}
	return answer{page: "letter", title: say("Letter %s", strconv.FormatInt(l.Seq, 10)), view: v}, err
}

type letterPage struct {
	L         operate.Letter
	Look      bool // whether the person may see payload and metadata
	Closed    string
	CauseLink string
	Base      string
	Redrive   string // the page that redrives this letter alone, if it waits
	Discard   string
	Restore   string // the page that lets this letter wait again, if it is discarded
	Edits     bool
	Payload   *payloadView
	Line      []entry
	Earlier   int // moments that are left out
	Others    []otherLetter
	Metadata  []pair
	Keys      int // of the metadata
	Command   string
	// Behind is how many messages of the letter's key wait in order.
	Behind     int
	BehindLink string
}

// oneLetter returns the letter that the address names.
func (c *console) oneLetter(r *request) (l operate.Letter, err error) {
	seq, err := strconv.ParseInt(r.HTTP.PathValue("seq"), 10, 64)
	if err != nil || seq <= 0 {
		return l, noPage()
	}
	return c.desk.Letter(r.HTTP.Context(), seq)
}

// otherLetter is another letter of the same message: a redriven message that failed again has one more.
type otherLetter struct {
	Seq, Link, Status string
	LeasedBy          string
	Here              bool
}

const shownOthers = 50

// others returns the letters of the message, with the one that is shown. Of a message without an id there is one.
func (c *console) others(r *request, l operate.Letter) (all []otherLetter, err error) {
	if l.Original.UUID == "" {
		return nil, nil
	}
	heads, err := c.desk.Store.Heads(r.HTTP.Context(),
		letters.Filter{IDs: []string{l.Original.UUID}, Statuses: letters.Statuses(), Limit: shownOthers})
	for _, h := range heads {
		all = append(all, otherLetter{id(h.Seq), r.link("letters/"+id(h.Seq), nil), operate.StatusWords(h.Status),
			h.LeasedBy, h.Seq == l.Seq})
	}
	return all, err
}

// payloadView is a payload as the page of a letter shows it.
type payloadView struct {
	printable.View
	Decoded *operate.DecodedData
	Size    int
	Masked  bool
	Tabs    []tab
}

// viewNames are the names of the ways to show a payload.
var viewNames = map[printable.Format]string{decodedView: "Decoded", "json": "JSON", "text": "Text", "hex": "Hex"}

const decodedView printable.Format = "decoded"

type tab struct {
	Name, Link string
	Here       bool
}

// The bounds of a payload's view: together with the rest of a page it stays below 60 KiB when it is compressed.
const (
	payloadLooked = 128 << 10 // bytes that are masked, and looked at: a masked value is shorter than what it hides
	payloadText   = 32 << 10  // bytes of JSON and text
	payloadHex    = 8 << 10
)

// payloadOf returns a view of the masked payload. Of a long payload only the beginning is looked at, and whether
// anything of the rest is masked is not known. If the decoded text has masked values, the bytes are not shown.
func (c *console) payloadOf(r *request, l operate.Letter) *payloadView {
	p, want := []byte(l.Original.Payload), printable.Format(r.Query.Get("view"))
	looked := p[:min(len(p), payloadLooked)]
	masked := c.desk.Masks.Payload(looked)
	v := &payloadView{View: printable.Payload(masked, want, payloadText, payloadHex, len(looked) == len(p)), Size: len(p)}
	v.Masked = string(masked) != string(looked) || len(looked) < len(p)
	decoded := c.desk.Decoded(r.HTTP.Context(), l.Letter)
	if decoded != nil {
		v.Decoded = &decoded.DecodedData
	}
	if formats := v.Formats; decoded.Read() {
		if decoded.Masked {
			v.Masked, formats = true, nil
		}
		if !slices.Contains(formats, want) {
			v.View = printable.Payload([]byte(decoded.Text), printable.Auto, payloadText, 0, true)
			if v.Format == printable.Hex { // a text with controls stays a text
				v.View = printable.Payload([]byte(decoded.Text), printable.Plain, payloadText, 0, true)
			}
			v.Format = decodedView
		}
		v.Formats = append([]printable.Format{decodedView}, formats...)
	}
	for _, format := range v.Formats {
		v.Tabs = append(v.Tabs, tab{viewNames[format],
			"?" + url.Values{"view": {string(format)}}.Encode() + "#payload", format == v.Format})
	}
	return v
}

// downloadUnmasked sends the exact bytes of a payload, with what is masked on pages. It is on record, as the command's
// --unmasked. What has nothing to mask is downloaded from the API.
func (c *console) downloadUnmasked(r *request) (answer, error) {
	form, err := r.form()
	if err != nil {
		return answer{}, err
	}
	reason := form.Get("reason")
	if reason == "" || len(reason) > maxName || !utf8.ValidString(reason) {
		return answer{}, badInput(say("Say why the bytes are needed without masks, in at most %s byte.|Say why the "+
			"bytes are needed without masks, in at most %s bytes.", maxName))
	}
	l, err := c.withPayload(r)
	if err != nil {
		return answer{}, err
	}
	if err := c.desk.Show(r.HTTP.Context(), r.who(reason), l.Seq); err != nil {
		return answer{}, err
	}
	return answer{file: web.Bytes("letter-"+id(l.Seq)+".bin", l.Original.Payload)}, nil
}

// withPayload returns the letter that the address names, with a payload that can be read.
func (c *console) withPayload(r *request) (operate.Letter, error) {
	l, err := c.oneLetter(r)
	switch {
	case err != nil:
		return l, err
	case l.Closed != nil:
		return l, &fault{status: http.StatusConflict, title: "The letter is sealed", text: "The payload cannot be " +
			"opened here.",
			detail: c.desk.Masks.Text(l.WhyClosed()), cause: l.Closed}
	case l.Status == letters.StatusErased:
		return l, &fault{status: http.StatusGone, title: "The payload is erased", text: payloadErased}
	}
	return l, nil
}

// pair is a key of the metadata and its value.
type pair struct {
	Key, Value string
	Hidden     bool // the person may not see the value
}

const (
	shownMetadata = 200
	metadataBytes = 24 << 10 // of all values together
)

// metadata returns the number of keys, and the first of them in their order, with masked values.
func (c *console) metadata(l operate.Letter, look bool) (n int, shown []pair) {
	all := l.Original.Metadata
	room := metadataBytes
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if len(shown) == shownMetadata || room <= 0 {
			break
		}
		p := pair{Key: key, Hidden: !look}
		if look {
			p.Value = c.desk.Masks.Metadata(key, all[key])
		}
		room -= min(len(key), maxShown) + min(len(p.Value), metadataShown)
		shown = append(shown, p)
	}
	return len(all), shown
}

// metadataShown is how many characters of a value are shown.
const metadataShown = 1000

// entry is an entry of the time line of a letter.
type entry struct {
	At         time.Time
	After      string // how long after the one before
	What, Kind string
	By, Why    string
	Detail     string
	Letter     string // another letter that it happened to
	Link       string
}

const shownEntries = 100

// timeLine puts what happened to a message into one order: its attempts, over stages and redrives, and the record of
// its letters. It returns the number of the entries that are too many to be shown, the earliest.
func timeLine(r *request, l letters.Letter, events []letters.Event) (line []entry, earlier int) {
	if !l.Origin.Timestamp.IsZero() {
		line = append(line, entry{At: l.Origin.Timestamp, Kind: "origin", What: "sent",
			Detail: l.Origin.Topic})
	}
	for _, a := range l.Failure.History {
		line = append(line, entry{At: a.At, Kind: "attempt", What: say("attempt failed (%s)", a.Class.String()),
			Detail: a.Error})
	}
	for _, e := range events {
		m := entry{At: e.At, Kind: "event", What: operate.EventWords(e.Kind), By: e.By, Why: e.Reason}
		if e.Kind != letters.EventEdited && e.Kind != letters.EventErasure { // values of messages
			m.Detail = e.Detail
		}
		if e.Seq != l.Seq && e.Seq > 0 {
			m.Letter, m.Link = id(e.Seq), r.link("letters/"+id(e.Seq), nil)
		}
		line = append(line, m)
	}
	slices.SortStableFunc(line, func(a, b entry) int { return a.At.Compare(b.At) })
	if earlier = max(0, len(line)-shownEntries); earlier > 0 {
		line = line[earlier:]
	}
	for i := range line[min(1, len(line)):] {
		line[i+1].After = gap(line[i+1].At.Sub(line[i].At))
	}
	return line, earlier
}

// gap writes the time between two moments. Less than a second says nothing.
func gap(d time.Duration) string {
	switch {
	case d < time.Second:
		return ""
	case d < 2*time.Minute:
		return say("after %s second|after %s seconds", int(d/time.Second))
	}
	return say("after %s", age(d))
}
