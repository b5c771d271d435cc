package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

func TestMain(m *testing.M) {
	child.Main(order.report)
	goleak.VerifyTestMain(m)
}

// inbox is a sink that keeps what it is sent.
type inbox struct {
	mu  sync.Mutex
	all []notify.Notice
}

func (b *inbox) sink(_ context.Context, n notify.Notice) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, n)
	return nil
}

// of returns the notices of a kind and status.
func (b *inbox) of(kind notify.Kind, status notify.Status) (found []notify.Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.all {
		if n.Kind == kind && n.Status == status {
			found = append(found, n)
		}
	}
	return found
}

func (b *inbox) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("%+v", b.all)
}

// one waits for the only notice of a kind and status.
func (b *inbox) one(t testing.TB, kind notify.Kind, status notify.Status) notify.Notice {
	t.Helper()
	var found []notify.Notice
	testkit.Eventually(t, fmt.Sprintf("a notice %s of %s", status, kind), func() bool { found = b.of(kind, status); return len(found) > 0 }, b.String)
	testkit.Require(t, len(found) == 1, "%d notices %s of %s: %+v", len(found), status, kind, found)
	return found[0]
}

// service is a router with a channel that has a Notifier.
type service struct {
	notifier *notify.Notifier
	channel  *spillway.Channel
	live     *gochannel.GoChannel
	stop     func()
	log      *testkit.Log
}

func start(t testing.TB, with notify.Config, config spillway.Config, handle message.NoPublishHandlerFunc,
	hurry func(*notify.Notifier), all ...*campaigns.Campaigns) *service {
	t.Helper()
	s := &service{live: gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil), log: &testkit.Log{}}
	if with.Logger == nil {
		with.Logger = s.log
	}
	s.notifier = testkit.Must(notify.New(with))
	notify.Hurry(s.notifier)
	hurry(s.notifier)
	if config.Publisher == nil && config.DB == nil {
		config.Publisher = nowhere{}
	}
	testkit.NoError(t, s.notifier.Observe(&config))
	s.channel = testkit.Must(spillway.New(t.Context(), config))
	testkit.NoError(t, s.notifier.Watch(t.Context(), s.channel, all...))
	if handle == nil {
		handle = func(*message.Message) error { return nil }
	}
	s.stop = testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		s.channel.Attach(r)
		r.AddPlugin(s.notifier.Plugin)
		r.AddConsumerHandler("billing", "orders", s.live, handle)
	})
	return s
}

func (s *service) publish(t testing.TB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		testkit.NoError(t, s.live.Publish("orders", message.NewMessage(id, []byte("acme"))))
	}
}

// letter is a letter of a cause.
func letter(cause string) poison.Letter {
	now := time.Now()
	return poison.Letter{DeadLetterTopic: "orders.dlq", Original: message.NewMessage("1", nil), Origin: poison.Origin{Topic: "orders", Handler: "billing"},
		Failure: poison.Failure{Class: classify.ClassPermanent, Reason: cause, Description: "order 7 is " + cause, FirstFailedAt: now, LastFailedAt: now}}
}

type nowhere = testkit.Nowhere

// Feature O4: the first letter of a cause is a notice with what is known of it, and further ones are not.
func TestNewCause(t *testing.T) {
	var in inbox
	var called atomic.Int32
	s := start(t, notify.Config{
		Sinks: []notify.Sink{in.sink}, Service: "shop", Shared: observe.Shared{Privacy: stars(t)},
		Link: func(n notify.Notice) string {
			return "https://runbooks.example.com/" + string(n.Kind) + "?cause=" + n.Cause
		},
	}, spillway.Config{Queue: poison.QueueConfig{Hooks: poison.Hooks{OnDeadLetter: func(context.Context, poison.Letter) { called.Add(1) }}}},
		func(msg *message.Message) error {
			return classify.Permanent(errors.New("customer "+msg.UUID+" has no password hunter2"), classify.Reason("no_such_customer"))
		}, notify.Hurry)
	s.publish(t, "1", "2", "3")
	host, _ := os.Hostname()
	n := in.one(t, notify.NewCause, notify.StatusNew)
	testkit.Check(t, n.Service == "shop" && n.Instance == fmt.Sprintf("%s/%d", host, os.Getpid()) &&
		n.Topic == "orders" && n.Handler == "billing" && n.Class == "permanent" && n.Reason == "no_such_customer" &&
		len(n.Cause) == 32 && n.ID != "" && n.Count >= 1 && !n.First.IsZero() && !n.Last.Before(n.First) &&
		n.Link == "https://runbooks.example.com/new_cause?cause="+n.Cause, "%+v", n)
	testkit.Check(t, strings.HasSuffix(n.Description, " has no password ***") &&
		n.Title == "Dead letter of a new cause: orders, billing, no_such_customer", "%+v", n)
	testkit.Eventually(t, "the user's own hook is called for 3 letters", func() bool { return called.Load() == 3 })
	s.stop()
	in.one(t, notify.NewCause, notify.StatusNew)
	e := s.log.Errors()
	testkit.Check(t, len(e) == 0, "%v", e)
}

// stars masks a password.
func stars(t *testing.T) *privacy.Redactor {
	t.Helper()
	return testkit.Must(privacy.New(privacy.Rules{Mask: func(text string) string { return strings.ReplaceAll(text, "hunter2", "***") }}))
}

// Feature O4: a Notifier that no channel has is silently dead, and two channels need two: both are errors with a sentence.
func TestObserves(t *testing.T) {
	n := testkit.Must(notify.New(notify.Config{Sinks: []notify.Sink{(&inbox{}).sink}}))
	config := spillway.Config{Publisher: nowhere{}}
	testkit.Says(t, n.Watch(t.Context(), testkit.Must(spillway.New(t.Context(), config))), "name it in Config.Observers")
	config.Observers = []spillway.Observer{n}
	dlc := testkit.Must(spillway.New(t.Context(), config))
	testkit.Says(t, testkit.Err(spillway.New(t.Context(), config)), "a Notifier of its own")
	testkit.NoError(t, n.Watch(t.Context(), dlc))
}

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

// Feature O4: a text of a notice is one line that no reader obeys, whatever the message had.
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

// Feature O4: hostile texts, and secrets in them, stay within the bounds of a notice.
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
	for says, config := range map[string]notify.Config{
		"Sinks is empty":  {},
		"Sinks[0] is nil": {Sinks: []notify.Sink{nil}},
	} {
		testkit.Says(t, testkit.Err(notify.New(config)), says)
	}
}
