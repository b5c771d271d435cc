package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/poison"
)

// readable fails if a text could do something to a terminal or a reader.
func readable(t interface {
	Helper()
	Errorf(format string, args ...any)
}, text string, most int) {
	testkit.Check(t, utf8.ValidString(text) && utf8.RuneCountInString(text) <= most+1 &&
		strings.TrimSpace(text) == text, "%.300q is no line of %d characters", text, most)
	obeyed := func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }
	testkit.Check(t, strings.IndexFunc(text, obeyed) < 0, "%.300q has a character that a reader obeys", text)
}

// Feature O4: a text of a notice is one line without control characters and marks of direction, whatever the message
// had.
func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", " a\tb\r\nc  d ": "a b c d", "\x1b[2Jx": "\ufffd[2Jx", "a\u202eb": "a\ufffdb", "a\u2066b\u2069": "a\ufffdb\ufffd", "\xff": "\ufffd", "a\x00": "a\ufffd",
		"größe 😀": "größe 😀", "zero\u200bwidth": "zero\ufffdwidth", "a\u2028b": "a b", strings.Repeat("é", 300): strings.Repeat("é", 200) + "…", "": "", "\n\n": "",
	} {
		got := notify.Line(text, 200)
		testkit.Check(t, got == want, "%.50q is %.50q, want %.50q", text, got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		readable(t, notify.Line(text, 40), 40)
	})
}

// Feature O4: hostile topics, handlers, reasons and descriptions, and secrets in them, stay within the bounds of a
// notice.
func TestHostileLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		b := inBubble(t, notify.Config{Sinks: []notify.Sink{in.sink}, Link: func(n notify.Notice) string { panic("no link") }})
		hostile := "\x1b]0;owned\x07\u202e<!channel> @here\r\n" + strings.Repeat("\u2066*x* ", 5000)
		l := letter("a")
		l.Origin.Topic, l.Origin.Handler, l.Failure.Reason = hostile, hostile, hostile
		l.Failure.Description = "login with password=hunter2 and Authorization: Bearer abcdefghijklmnop failed " + hostile
		b.hooks.OnDeadLetter(context.Background(), l)
		b.hooks.OnDeadLetter(context.Background(), poison.Letter{}) // with nothing in it
		b.hooks.OnUnplaced(context.Background(), l, errors.New("postgres://ann:hunter2@db/shop "+hostile))
		time.Sleep(2 * time.Second)
		b.Stop()
		testkit.Require(t, len(in.all) == 3, "%d notices", len(in.all))
		for _, n := range in.all {
			for _, text := range []string{n.Title, n.Subject, n.Cause, n.Topic, n.Handler, n.Class, n.Reason, n.Description, n.Instance} {
				readable(t, text, 1000)
			}
			body, err := json.Marshal(n)
			testkit.Check(t, err == nil && len(body) <= 20_000 && !strings.Contains(string(body), "hunter2") &&
				!strings.Contains(string(body), "abcdefghijklmnop"), "%s %v", body, err)
			testkit.Check(t, n.Link == "", "%q", n.Link)
		}
	})
}

// Feature O4: a link that is no address of http does not stand in a notice.
func TestLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for link, want := range map[string]string{
			"https://runbooks.example.com/a?b=c#d": "https://runbooks.example.com/a?b=c#d", "javascript:alert(1)": "", "//x": "", "https://ann:secret@x.example.com": "", "": "",
			"https://x.example.com/" + strings.Repeat("x", 3000): "", "https://x.example.com/a b<c>": "https://x.example.com/a%20b%3Cc%3E", "\x1b": "",
		} {
			var in inbox
			b := inBubble(t, notify.Config{Sinks: []notify.Sink{in.sink}, Link: func(notify.Notice) string { return link }})
			b.place("a")
			time.Sleep(2 * time.Second)
			b.Stop()
			n := in.one(t, notify.NewCause, notify.StatusNew)
			testkit.Check(t, n.Link == want, "%q is %q", link, n.Link)
		}
	})
}

// A configuration that cannot work is an error that names the field.
func TestRefusedConfigurations(t *testing.T) {
	sinks := []notify.Sink{(&inbox{}).sink}
	for says, config := range map[string]notify.Config{
		"Sinks is empty":  {},
		"Sinks[0] is nil": {Sinks: []notify.Sink{nil}},
		"Kinds has \"x\"": {Sinks: sinks, Kinds: []notify.Kind{"x"}},
		"Window is -1s":   {Sinks: sinks, Window: -time.Second},
	} {
		if _, err := notify.New(config); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	n := testkit.Must(notify.New(notify.Config{Sinks: sinks}))
	for what, err := range map[string]error{
		"Watch without a channel": n.Watch(t.Context(), nil), "Watch without a context": n.Watch(nil, nil), //lint:ignore SA1012 it is the test
		"Watch": n.Watch(t.Context(), &spillway.Channel{}, nil), "Plugin": n.Plugin(nil),
	} {
		testkit.Check(t, err != nil, "%s: no error", what)
	}
}
