package poison

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/seal"
)

// Feature D14: without any configuration no credential of an error is in the letter's texts, in the hooks, or in the
// error that the router gets. Payload and metadata keep their bytes.
func TestQueueMasksByDefault(t *testing.T) {
	const secret = "hunter2"
	failure := fmt.Errorf("connect postgres://ops:%s@db/x: %w", secret, errors.New("password="+secret))
	for name, c := range map[string]struct {
		fail  func() error
		known string // what stays readable
	}{
		"error":       {func() error { return failure }, "connect postgres://ops:[redacted]@db/x: password=[redacted]"},
		"panic":       {func() error { panic(failure) }, "panic: connect postgres://ops:[redacted]@db/x"},
		"reason":      {func() error { return classify.Permanent(failure, classify.Reason("password="+secret)) }, "[redacted]"},
		"description": {func() error { return classify.Permanent(failure, classify.Description("password="+secret)) }, "password=[redacted]"},
		"cut before": {func() error {
			return errors.New(strings.Repeat("x", 230-4-10) + " amqp://a:" + secret + "@b" + strings.Repeat(" y", 40))
		}, "xxx"},
		"cut panic": {func() error {
			panic(strings.Repeat("x", 4096-40) + " amqp://a:" + secret + "@b " + strings.Repeat("y ", 100))
		}, "xxx"},
	} {
		for _, refused := range []bool{false, true} {
			t.Run(fmt.Sprint(name, refused), func(t *testing.T) {
				var shown []string
				hook := func(_ context.Context, l Letter) {
					shown = append(shown, fmt.Sprintf("%+v", l.Failure))
					testkit.Check(t, string(l.Original.Payload) == "password=hunter2" &&
						l.Original.Metadata["password"] == secret, "the original is changed: %v", l.Original)
				}
				failed := func(_ context.Context, l Letter, err error) {
					shown = append(shown, fmt.Sprintf("%+v %v %+v", l.Failure, err, err))
				}
				taken := &sink{refuse: func(int, string, *message.Message) error {
					if refused {
						return fmt.Errorf("publish to amqp://a:%s@b/", secret)
					}
					return nil
				}}
				queue := newQueue(taken, QueueConfig{PublishAttempts: 1, Hooks: Hooks{OnDeadLetter: hook, OnUnplaced: failed, OnPublishError: failed}})
				msg := message.NewMessage("m", []byte("password=hunter2"))
				msg.Metadata["password"] = secret
				_, err := queue.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, c.fail() })(msg)
				testkit.Require(t, (err != nil) == refused, "%v", err)
				if err != nil {
					shown = append(shown, fmt.Sprintf("%v %+v", err, err))
					testkit.Check(t, name != "error" || errors.Is(err, failure),
						"the error does not wrap that of the handler")
				}
				for _, l := range taken.in("unknown.dlq") {
					metadata := maps.Clone(l.Metadata)
					testkit.Check(t, string(l.Payload) == "password=hunter2" && metadata["password"] == secret,
						"the letter's message is changed: %v", l)
					delete(metadata, "password")
					shown = append(shown, fmt.Sprint(metadata))
				}
				all := strings.Join(shown, "\n")
				if len(shown) < 2 || strings.Contains(all, secret) || strings.Contains(all, secret[:4]) || !strings.Contains(all, c.known) {
					t.Errorf("%d shown: %s", len(shown), all)
				}
			})
		}
	}
}

// testKeys are a keyring that can be unavailable.
type testKeys struct {
	seal.Keys
	unavailable atomic.Bool
}

func (k *testKeys) Current(ctx context.Context) (seal.Key, error) {
	if k.unavailable.Load() {
		return seal.Key{}, errors.New("the KMS does not answer")
	}
	return k.Keys.Current(ctx)
}

func newSealer(t testing.TB, clear ...string) (*seal.Sealer, *testKeys) {
	t.Helper()
	ring := testkit.Must(seal.ParseKeyring(testkit.Keyring("k1")))
	keys := &testKeys{Keys: ring}
	s := testkit.Must(seal.New(keys, clear...))
	return s, keys
}

func sameMessage(a, b *message.Message) bool {
	return a.UUID == b.UUID && bytes.Equal(a.Payload, b.Payload) && (a.Payload == nil) == (b.Payload == nil) && maps.Equal(a.Metadata, b.Metadata)
}

func anyMessage(t *rapid.T) *message.Message {
	text := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 60), func(b []byte) string { return string(b) })
	msg := message.NewMessage(text.Draw(t, "id"), nil)
	if rapid.Bool().Draw(t, "has payload") {
		msg.Payload = append([]byte{}, text.Draw(t, "payload")...)
	}
	own := rapid.OneOf(text, rapid.SampledFrom([]string{"clear-1", "clear-2", "Traceparent", "x-failure", "correlation_id"})).
		Filter(func(key string) bool { return ours[key] == 0 })
	maps.Copy(msg.Metadata, rapid.MapOfN(own, text, 0, 5).Draw(t, "metadata"))
	return msg
}

// Feature D14, D6: in each form and with each budget, a sealed letter opens as the message that it was, and shows
// nothing that is sealed.
func TestSealedForms(t *testing.T) {
	s, _ := newSealer(t, "clear-*")
	rapid.Check(t, func(t *rapid.T) {
		l := sampleLetter()
		l.Original = anyMessage(t)
		l.Original.Metadata["secret"] = "4111 1111 1111 1111"
		l.Redrive.Count = rapid.IntRange(0, 3).Draw(t, "redrives")
		l.Origin.Topic = rapid.SampledFrom([]string{"orders", strings.Repeat("topic/", 40), strings.Repeat("long", maxIdentity)}).Draw(t, "topic")
		sealed := testkit.Must(l.seal(t.Context(), s))
		testkit.Require(t, sealed.SealKey == "k1" && sealed.Sealed, "sealed with %q", sealed.SealKey)
		max := rapid.SampledFrom([]limits{defaultLimits, shrunkLimits, leastLimits}).Draw(t, "limits")
		for form, msg := range map[rawForm]*message.Message{
			whole: sealed.encode(max), packed: sealed.raw(packed, max.total), bare: sealed.raw(bare, max.total), plain: sealed.plain(),
		} {
			all := fmt.Sprint(msg.Metadata, string(msg.Payload))
			testkit.Require(t, !strings.Contains(all, "4111 1111"), "form %s shows what is sealed: %q", form, all)
			read := Read(msg)
			opened, err := read.Open(t.Context(), s)
			testkit.Require(t, err == nil, "form %s: %v", form, err)
			want := l.Original.Copy()
			if form == bare { // what is clear is dropped with it, and the id may be named
				want.UUID = opened.Original.UUID
				maps.DeleteFunc(want.Metadata, func(key, _ string) bool { return strings.HasPrefix(key, "clear-") })
			}
			testkit.Require(t, sameMessage(opened.Original, want) && !opened.Sealed,
				"form %s opened %+v\nwant %+v", form, opened.Original, want)
			testkit.Require(t, len(l.Origin.Topic) > maxIdentity || opened.Origin.Topic == l.Origin.Topic,
				"form %s has the topic %q", form, opened.Origin.Topic)
		}
	})
}

// Feature D14: Unseal brings back each message that Seal sealed, letters of other writers and raw forms too, and Read
// reads the same story of both.
func TestSealMessage(t *testing.T) {
	s, _ := newSealer(t, "clear-*")
	rapid.Check(t, func(t *rapid.T) {
		l := sampleLetter()
		l.Original = anyMessage(t)
		msg := map[string]func() *message.Message{
			"whole": l.Encode, "packed": func() *message.Message { return l.raw(packed, MaxAdded) }, "none": l.Original.Copy,
			"spring": func() *message.Message {
				c := l.Original.Copy()
				c.Metadata[springTopic], c.Metadata[springException] = "orders", "java.lang.Error"
				return c
			},
		}[rapid.SampledFrom([]string{"whole", "packed", "none", "spring"}).Draw(t, "form")]()
		sealed, _, err := sealMessage(t.Context(), s, msg)
		testkit.NoError(t, err)
		before, after := Read(msg), Read(sealed)
		if !after.Sealed || before.Sealed || fmt.Sprint(before.Failure, before.Origin, before.Redrive) != fmt.Sprint(after.Failure, after.Origin, after.Redrive) {
			t.Fatalf("read %+v\nof   %+v", after, before)
		}
		opened, err := after.Open(t.Context(), s)
		testkit.Require(t, err == nil && sameMessage(opened.Original, before.Original),
			"opened %+v, %v\nof     %+v", opened.Original, err, before.Original)
		if again, changed, err := sealMessage(t.Context(), s, sealed); err != nil || changed || again != sealed {
			t.Fatalf("sealed twice: %v", err)
		}
	})
}

// Feature D14: what leaves the queue is sealed; it opens as the message that failed, and after its redrive fails as a
// letter anew.
func TestQueueSeals(t *testing.T) {
	s, _ := newSealer(t, "tenant")
	dead := &sink{}
	var notified Letter
	hooks := Hooks{OnDeadLetter: func(_ context.Context, l Letter) { notified = l }}
	queue := newQueue(dead, QueueConfig{Seal: s, Hooks: hooks})
	msg := message.NewMessage(watermill.NewUUID(), []byte("card 4111111111111111"))
	msg.Metadata["customer"], msg.Metadata["tenant"] = "Ada Lovelace", "eu"
	msg.Metadata[KeySealed] = "9" // of a producer, it is no mark of ours
	want := msg.Copy()
	delete(want.Metadata, KeySealed)
	for n := 1; n <= 3; n++ {
		testkit.NoError(t, queue.Place(msg, errors.New("boom")))
		got := dead.in("unknown.dlq")[n-1]
		all := fmt.Sprint(got.Metadata, string(got.Payload), notified.Original.Metadata, string(notified.Original.Payload))
		testkit.Check(t, !strings.Contains(all, "4111111111111111") && !strings.Contains(all, "Ada Lovelace") &&
			got.Metadata["tenant"] == "eu" && notified.Sealed && notified.Redrive.Count == n-1, "published and told %s", all)
		l, err := Decode(got)
		testkit.Check(t, err == nil && l.Sealed && l.Failure.Description == "boom" && l.Redrive.Count == n-1,
			"letter %+v, %v", l, err)
		opened, err := l.Open(t.Context(), s)
		testkit.Require(t, err == nil && sameMessage(opened.Original, want), "opened %+v, %v", opened.Original, err)
		if _, err := l.Open(t.Context(), nil); !errors.Is(err, seal.ErrNoKeys) || !strings.Contains(err.Error(), `"k1"`) {
			t.Errorf("without keys: %v", err)
		}
		msg = opened.Redriven("ada", "campaign", time.Now())
	}
}

// Feature D14, D4: while the keys are unavailable nothing is published, in the clear or otherwise, and no message is
// lost.
func TestQueueWithoutKeys(t *testing.T) {
	s, keys := newSealer(t)
	keys.unavailable.Store(true)
	dead, log := &sink{}, &testkit.Log{}
	r := start(t, "orders", dead, QueueConfig{Seal: s, Shared: observe.Shared{Logger: log}, PublishBackoff: time.Millisecond}, failing(errors.New("boom")))
	r.publish(message.NewMessage("m", []byte("card 4111111111111111")))
	eventually(t, "the log says why", func() bool {
		for _, line := range log.Errors() {
			if line.Err != nil && strings.Contains(line.Text, "cannot be sealed") && strings.Contains(line.Err.Error(), "the KMS does not answer") {
				return true
			}
		}
		return false
	})
	testkit.Equal(t, "published", dead.topics(), "")
	keys.unavailable.Store(false)
	eventually(t, "it is a letter", func() bool { return len(dead.in("orders.dlq")) == 1 })
	got := dead.in("orders.dlq")[0].Payload
	testkit.Check(t, !bytes.Contains(got, []byte("4111111111111111")), "published in the clear: %q", got)
}

// Feature D14, D12: a sealed letter that fails in its own consumer is parked as it is.
func TestParkedSealed(t *testing.T) {
	s, _ := newSealer(t)
	letter := sampleLetter()
	letter.Original.Payload = []byte("card 4111111111111111")
	sealed := testkit.Must(letter.seal(t.Context(), s))
	for name, l := range map[string]Letter{"sealed": sealed, "clear": letter} {
		for _, limit := range []int{1 << 20, 0} {
			dead := &sink{}
			if limit == 0 { // only the message as it came fits
				dead.refuse = func(_ int, _ string, msg *message.Message) error {
					if _, is := msg.Metadata[KeyFailureNode]; is || msg.Metadata[KeyFailureReason] != "permanent_error" {
						return fmt.Errorf("%w", classify.ErrTooLarge)
					}
					return nil
				}
			}
			l.Failure.Reason, l.Failure.Node = "permanent_error", ""
			r := start(t, "orders.dlq", dead, QueueConfig{Seal: s, PublishBackoff: time.Millisecond, Node: "node"}, failing(errors.New("a bug")))
			r.publish(l.Encode())
			eventually(t, name+" is parked", func() bool { return len(dead.in("orders.dlq.parked")) == 1 })
			got := dead.in("orders.dlq.parked")[0]
			parked := Read(got)
			opened, err := parked.Open(t.Context(), s)
			if err != nil || !parked.Sealed || !sameMessage(opened.Original, letter.Original) || bytes.Contains(got.Payload, []byte("4111111111111111")) {
				t.Errorf("%s, limit %d: parked %+v, opened %+v, %v", name, limit, parked, opened.Original, err)
			}
			testkit.Check(t, name != "sealed" || bytes.Equal(got.Payload, sealed.Original.Payload),
				"%s, limit %d: sealed twice", name, limit)
		}
	}
}
