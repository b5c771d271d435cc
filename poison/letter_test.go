package poison

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var longAgo = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

func sampleLetter() Letter {
	original := message.NewMessage("id-1", []byte(`{"n":1}`))
	original.Metadata = message.Metadata{"tenant": "acme", "x-original-thing": "the producer's own"}
	return Letter{
		Original: original,
		Origin: Origin{
			Topic: "orders", Partition: "3", Offset: "77", Timestamp: longAgo, Key: []byte{0xff, 0x00, 'k'}, MessageID: "id-1",
			Handler: "billing", ConsumerGroup: "billing-group", Exchange: "shop", RoutingKey: "orders.eu",
		},
		Failure: Failure{
			Class: classify.ClassPermanent, Reason: "card_expired", Description: "the card has expired", Type: "*app.Error",
			Stack: "main.handle(...)\n\tmain.go:1\n", StackHash: "00ff", Node: "host-1", Attempts: 5,
			FirstFailedAt: longAgo.Add(time.Second), LastFailedAt: longAgo.Add(time.Minute),
			History: []classify.Attempt{{At: longAgo, Class: classify.ClassTransient, Error: "connection refused"}},
		},
		Redrive: Redrive{Count: 2, At: longAgo, By: "ada", ID: "campaign-1"},
	}
}

// Feature D6: whatever a failure says, what is added stays within the budget, is UTF-8, and marks its cuts.
func TestEncodeKeepsBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anyText := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.Map(rapid.IntRange(0, 40_000), func(n int) string { return strings.Repeat("é", n) }))
		original := message.NewMessage(anyText.Draw(t, "id"), nil)
		original.Metadata["mine"] = anyText.Draw(t, "mine")
		l := Letter{
			Original: original,
			Origin:   Origin{Topic: anyText.Draw(t, "topic"), Handler: anyText.Draw(t, "handler"), Key: []byte(anyText.Draw(t, "key")), MessageID: original.UUID},
			Failure: Failure{
				Class: classify.ClassInvalid, Reason: anyText.Draw(t, "reason"), Description: anyText.Draw(t, "description"),
				Stack: anyText.Draw(t, "stack"), Type: anyText.Draw(t, "type"), Node: anyText.Draw(t, "node"),
				History: []classify.Attempt{{At: longAgo, Error: anyText.Draw(t, "error")}},
			},
		}
		max := limits{total: rapid.IntRange(1<<10, 20_000).Draw(t, "budget"), description: 4 << 10, stack: 8 << 10, history: maxHistory}
		msg := l.encode(max)
		added := 0
		for key, value := range msg.Metadata {
			if key == "mine" {
				continue
			}
			added += len(key) + len(value)
			testkit.Require(t, utf8.ValidString(value) && !strings.ContainsRune(value, 0),
				"%s is not text: %q", key, value)
		}
		testkit.Require(t, added <= max.total, "%d bytes added, %d allowed", added, max.total)
		testkit.Require(t, msg.Metadata["mine"] == original.Metadata["mine"] && msg.UUID == original.UUID,
			"the producer's own was changed")
		got, err := Decode(msg)
		testkit.Require(t, err == nil && got.Failure.Class == classify.ClassInvalid,
			"decoded class %s, error %v", got.Failure.Class, err)
		testkit.Require(t, len(l.Origin.Topic) > 200 || got.Origin.Topic == l.Origin.Topic,
			"topic %q became %q", l.Origin.Topic, got.Origin.Topic)
	})
}

// Feature D1, bad input: garbage under our keys reads as absent.
func TestDecodeHostileValues(t *testing.T) {
	msg := message.NewMessage("id", nil)
	msg.Metadata = message.Metadata{
		KeyFailureClass: "murderous", KeyAttempts: "99999999999", KeyRedriveCount: "-1", KeyLastFailedAt: "yesterday",
		KeyFirstFailedAt: "0001-01-01T00:00:00Z", KeyOriginalKey + Base64Suffix: "!!!", KeyOriginalTopic: strings.Repeat("t", 1<<20),
		KeyFailureDescription: strings.Repeat("d", 1<<20), KeyAttemptHistory: "no history\n\x00\n" + strings.Repeat("2026-01-01T00:00:00Z transient x\n", 1000),
	}
	l := testkit.Must(Decode(msg))
	testkit.Check(t, l.Failure.Class == classify.ClassUnknown && l.Failure.Attempts == 0 && l.Redrive.Count == 0 &&
		l.Failure.LastFailedAt.IsZero() && l.Failure.FirstFailedAt.IsZero() && l.Origin.Key == nil &&
		l.Origin.Topic == "", "believed garbage: %+v", l)
	testkit.Check(t, len(l.Failure.Description) <= MaxAdded && len(l.Failure.History) <= attempts.Kept,
		"unbounded: description %d bytes, history %d", len(l.Failure.Description), len(l.Failure.History))
	_, err := Decode(message.NewMessage("id", nil))
	testkit.Check(t, errors.Is(err, ErrNotLetter), "a plain message gave %v", err)
}

type tracedError struct{ error }

// endless wraps itself.
type endless struct{ error }

func (e endless) Unwrap() error { return e }

// Feature D1: type chain, stack and its hash. The hash is the same for the same place, whatever the arguments.
func TestCause(t *testing.T) {
	hashes := map[string]string{}
	for _, value := range []any{"one", errors.New("two"), 3} {
		err := panicking(value)
		stack := stackOf(fmt.Errorf("handling: %w", err))
		testkit.Require(t, strings.HasPrefix(stack, "github.com/watermill-spillway/spillway/poison.panicking"),
			"the stack does not start where it panicked:\n%s", stack)
		hashes[hashStack(stack)] = stack
	}
	testkit.Check(t, len(hashes) == 1, "%d hashes for one place: %v", len(hashes), hashes)
	kinds := typesOf(fmt.Errorf("a: %w", classify.Permanent(tracedError{errors.New("b")})))
	testkit.Check(t, kinds == "poison.tracedError", "type chain %q", kinds)
	testkit.Equal(t, "types of an endless error", strings.Count(typesOf(endless{}), "endless"), maxCauses)
}

// Feature D1: the stack is the handler's, and its hash the same in every attempt, however the parts around it came
// there.
func TestStackEndsAtHandler(t *testing.T) {
	const frames = "main.charge(...)\n\t/app/charge.go:7 +0x1d\nmain.handle(0xc0)\n\t/app/main.go:9\n"
	for _, below := range []string{
		"github.com/watermill-spillway/spillway/middleware.Recover.step.func1(0x1)\n\t/x/recover.go:27\nfirst()\n",
		"github.com/watermill-spillway/spillway/internal/chain.Enter.func1.1(0x2)\n\t/x/chain.go:27\nsecond()\n",
		"github.com/watermill-spillway/spillway.New.Enter.func1.1(0x3)\n\t/x/chain.go:27\nthird()\n",
	} {
		testkit.Equal(t, "", handlerFrames(frames+below), frames)
	}
	for _, whole := range []string{"", frames, "github.com/watermill-spillway/spillway/examples.handle(...)\n\t/x\n", "no newline github.com/watermill-spillway/spillway"} {
		got := handlerFrames(whole)
		testkit.Check(t, got == whole, "cut %q to %q", whole, got)
	}
}

func panicking(value any) (err error) {
	defer func() { err = safecall.Panicked(recover()) }()
	panic(value)
}

// Feature D4: the wait between tries doubles, give or take half of it, and is never cut to less than was asked for.
func TestPublishBackoff(t *testing.T) {
	for _, first := range []time.Duration{50 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			dead := &sink{refuse: func(int, string, *message.Message) error {
				at = append(at, time.Now())
				return errors.New("not now")
			}}
			queue := newQueue(dead, QueueConfig{PublishAttempts: 8, PublishBackoff: first})
			err := queue.Place(message.NewMessage("m", nil), errors.New("failed"))
			testkit.Require(t, err != nil && len(at) == 8, "%v %v", err, len(at))
			for i := range 7 {
				wait, want := at[i+1].Sub(at[i]), min(first<<i, max(first, time.Second))
				testkit.Check(t, wait >= want/2 && wait <= want*3/2+time.Millisecond,
					"with %s: wait %d is %s, want about %s", first, i+1, wait, want)
			}
		})
	}
}

// Features D4, D6: a refusal for size is tried once more as it is.
func TestCutDownIsSmaller(t *testing.T) {
	for _, most := range []int{1 << 10, 1500, 4 << 10, MaxAdded} {
		for _, watermill := range []bool{false, true} {
			var sizes []int
			dead := &sink{refuse: func(_ int, _ string, msg *message.Message) error {
				size := 0
				for key, value := range msg.Metadata {
					size += len(key) + len(value)
				}
				sizes = append(sizes, size)
				return classify.ErrTooLarge
			}}
			queue := newQueue(dead, QueueConfig{WatermillKeys: watermill})
			queue.limits.total = most
			failure := &classify.Failure{}
			for i := range 10 {
				attempts.Add(failure, fmt.Errorf("%d %s", i, strings.Repeat("long ", 2000)), classify.Verdict{}, time.Now())
			}
			testkit.Require(t, queue.Place(message.NewMessage(strings.Repeat("m", 900), nil), failure) != nil,
				"it was taken")
			whole, cut := sizes[0], sizes[len(sizes)-1]
			extra := 0
			if watermill {
				extra = 4 << 10
			}
			if sizes[1] != whole || whole > most+extra || cut > whole || cut > 4<<10 || most == MaxAdded && cut >= whole {
				t.Errorf("budget %d, with Watermill's keys %t: sizes %v", most, watermill, sizes)
			}
		}
	}
}

// Promises P1, P3, decision 13: while what takes the letters is unavailable, messages are held rather than nacked again
// and again, which a broker may count and end. Their handlers run once. TestOutage of internal/hold/outage has the log.
func TestSinksUnavailable(t *testing.T) {
	down := hold.NewUnavailable("no connection")
	synctest.Test(t, func(t *testing.T) {
		back, dead := time.Now().Add(12*time.Second), &sink{}
		dead.refuse = func(int, string, *message.Message) error {
			if time.Now().Before(back) {
				return fmt.Errorf("publish: %w", down)
			}
			return nil
		}
		calls := 0
		_, err := newQueue(dead, QueueConfig{}).Middleware(func(*message.Message) ([]*message.Message, error) {
			calls++
			return nil, classify.Permanent(errors.New("failed"))
		})(message.NewMessage("m", nil))
		testkit.Check(t, err == nil && calls == 1 && dead.topics() == "unknown.dlq:1", "%d calls, letters %v, %v", calls, dead.topics(), err)
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Feature D1: a time that no clock has, as of a producer in the wrong unit, is not written: what is written is read.
func TestTimesAreRead(t *testing.T) {
	for _, at := range []time.Time{time.UnixMilli(time.Now().UnixMicro()), time.Unix(-1e12, 0), time.Unix(1, 0).AddDate(-3, 0, 0)} {
		l := Letter{Original: message.NewMessage("id-1", nil), Origin: Origin{Topic: "orders", Timestamp: at}}
		written := l.Encode()
		testkit.Check(t, written.Metadata[KeyOriginalTimestamp] == "" && Read(written).Origin.Timestamp.IsZero(),
			"%v: %q", at, written.Metadata)
	}
}

// Feature D1: attempts are appended to earlier ones, of any writer, and the latest ten are kept.
func TestHistoryIsAppended(t *testing.T) {
	one := func(n int) classify.Attempt {
		return classify.Attempt{At: longAgo.Add(time.Duration(n) * time.Second), Class: classify.ClassTransient, Error: fmt.Sprint(n)}
	}
	written := ""
	for n := range 3 * attempts.Kept {
		written = encodeHistory(append(decodeHistory(written), one(n)), maxHistory)
		history := decodeHistory(written)
		testkit.Require(t, len(history) == min(n+1, attempts.Kept) && history[len(history)-1] == one(n), "after %d: %s", n, written)
	}
	entry := `{"at":"2026-01-01T00:00:00Z","class":"transient"}`
	for written, kept := range map[string]int{
		"[" + entry + "]": 1, "[ " + entry + " ] ": 1, "[" + entry: 0, entry: 0, "[]": 0, "[1," + entry + "]": 1,
		`[{"at":"` + strings.Repeat("x", 500): 0, `[{"at":"2026-01-01","class":"transient"},` + entry + "]": 1,
		"[" + strings.Repeat(entry+",", 99) + entry + "]": attempts.Kept,
	} {
		testkit.Check(t, len(decodeHistory(written)) == kept, "%.80s: %+v", written, decodeHistory(written))
	}
	long := classify.Attempt{At: longAgo, Error: strings.Repeat(`"`, maxCause)}
	line := encodeHistory([]classify.Attempt{long, long, one(1)}, 2*maxCause+200)
	testkit.Check(t, len(decodeHistory(line)) == 2 && len(line) <= 2*maxCause+200, "what does not fit is left out: %s", line)
}
