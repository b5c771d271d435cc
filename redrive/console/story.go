package console

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

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

func nameOf(l operate.Letter, ending string) string {
	return "letter-" + strconv.FormatInt(l.Seq, 10) + ending
}
