package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
	"github.com/watermill-spillway/spillway/observe/notify/internal/ledger"
)

// about is what a notice says of its subject, as the ledger keeps it: another instance may have to say it.
type about struct {
	Subject, Cause, Topic, Handler, Class, Reason, Description string `json:",omitempty"`
	Waiting                                                    int64  `json:",omitempty"` // letters of a Threshold
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

func (n *Notifier) wants(kind Kind) bool { return slices.Contains(n.config.Kinds, kind) }

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
		logging.NoticeLinkPanicked.Write(n.logger(), err, nil)
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
