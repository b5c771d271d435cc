package guard_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/guard"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func newMessage(id string) *message.Message {
	msg := message.NewMessage(id, nil)
	msg.Metadata.Set("tenant", "acme")
	return msg
}

func verdict(err error) classify.Verdict { return (*classify.Classifier)(nil).Classify(err) }

func middleware(rules guard.Rules) message.HandlerMiddleware {
	return chain.EnterParts(testkit.Must(guard.New(rules)))
}

// guarded passes a message with the metadata through a guard.
func guarded(t testing.TB, config guard.Rules, metadata message.Metadata) (handled bool, err error) {
	t.Helper()
	msg := newMessage("1")
	msg.Metadata = metadata
	_, err = middleware(config)(func(*message.Message) ([]*message.Message, error) {
		handled = true
		return nil, nil
	})(msg)
	return handled, err
}

func ago(d time.Duration) string { return time.Now().Add(-d).Format(time.RFC3339Nano) }

// Feature D11: which messages a guard keeps from the handler, and as what. What cannot be read counts as absent.
func TestGuardRules(t *testing.T) {
	const passes = classify.ClassUnknown
	expires := guard.Rules{ExpiresKey: "expires"}
	hops := guard.Rules{MaxHops: 2}
	required := guard.Rules{Required: []string{"tenant", "type"}}
	synctest.Test(t, func(t *testing.T) { // the time stands still, so that edges are edges
		for _, row := range []struct {
			name     string
			config   guard.Rules
			metadata message.Metadata
			class    classify.Class
			reason   string
		}{
			{"no rules", guard.Rules{}, nil, passes, ""},
			{"all required", required, message.Metadata{"tenant": "a", "type": "b"}, passes, ""},
			{"one missing", required, message.Metadata{"tenant": "a"}, classify.ClassInvalid, "missing_metadata"},
			{"one empty", required, message.Metadata{"tenant": "a", "type": ""}, classify.ClassInvalid, "missing_metadata"},
			{"not expired", expires, message.Metadata{"expires": ago(-1)}, passes, ""},
			{"expires now", expires, message.Metadata{"expires": ago(0)}, classify.ClassPermanent, "ttl_expired"},
			{"expired in another zone", expires, message.Metadata{"expires": "1999-12-31T18:59:59-05:00"}, classify.ClassPermanent, "ttl_expired"},
			{"never expires", expires, message.Metadata{}, passes, ""},
			{"expires at nonsense", expires, message.Metadata{"expires": "soon"}, passes, ""},
			{"expires in the year 0", expires, message.Metadata{"expires": "0000-01-01T00:00:00Z"}, passes, ""},
			{"expires at a very long text", expires, message.Metadata{"expires": strings.Repeat("9", 1<<20)}, passes, ""},
			{"hops allowed", hops, message.Metadata{"x-hop-count": "2"}, passes, ""},
			{"one hop too many", hops, message.Metadata{"x-hop-count": "3"}, classify.ClassPermanent, "max_hop_count_exceeded"},
			{"hops negative", hops, message.Metadata{"x-hop-count": "-3"}, passes, ""},
			{"hops beyond all bounds", hops, message.Metadata{"x-hop-count": "99999999999999999999"}, passes, ""},
		} {
			handled, err := guarded(t, row.config, row.metadata)
			v := verdict(err)
			testkit.Check(t, v.Class == row.class && v.Reason == row.reason,
				"%s: the verdict is %s, %q", row.name, v.Class, v.Reason)
			testkit.Check(t, handled == (row.class == passes) && handled == (err == nil),
				"%s: handled: %t, error %v", row.name, handled, err)
		}
	})
}

// Conventions: a guard that makes no sense is an error at construction, and names its field.
func TestGuardConstruction(t *testing.T) {
	for want, config := range map[string]guard.Rules{
		"GuardConfig.Required[1]":   {Required: []string{"a", ""}},
		"GuardConfig.MaxHops is -1": {MaxHops: -1},
	} {
		testkit.Says(t, testkit.Err(guard.New(config)), want)
	}
}

// Feature D11: outputs carry the count on, also where the handler wiped it, and a circle ends.
func TestHopsAreCounted(t *testing.T) {
	circle := middleware(guard.Rules{MaxHops: 3})(func(m *message.Message) ([]*message.Message, error) {
		m.Metadata = nil
		return []*message.Message{message.NewMessage("next", nil)}, nil
	})
	msg := newMessage("1")
	for handled := 0; ; handled++ {
		out, err := circle(msg)
		if err != nil {
			testkit.Check(t, handled == 4 && verdict(err).Reason == classify.ReasonMaxHops,
				"stopped after %d handlers: %v", handled, err)
			return
		}
		msg = out[0].Copy()
	}
}

// Feature D11, promises P2, P4: what a guard writes into outputs. The source stays as it arrived, or its redeliveries
// would be taken for hops. Nil outputs are left to Recover.
func TestHopsOfOutputs(t *testing.T) {
	for name, row := range map[string]struct {
		max     int
		arrived string
		out     func(*message.Message) []*message.Message
		want    []string
	}{
		"the source passed on": {9, "4", func(m *message.Message) []*message.Message {
			return []*message.Message{m, m, message.NewMessage("new", nil)}
		}, []string{"5", "5", "5"}},
		"the source's metadata": {9, "", func(m *message.Message) []*message.Message {
			return []*message.Message{{UUID: "out", Metadata: m.Metadata}}
		}, []string{"1"}},
		"none, and nil":   {1, "", func(*message.Message) []*message.Message { return []*message.Message{{UUID: "bare"}, nil} }, []string{"1", "nil"}},
		"without MaxHops": {0, "4", func(m *message.Message) []*message.Message { return []*message.Message{{UUID: "out"}} }, []string{""}},
	} {
		msg := newMessage("1")
		msg.Metadata.Set("x-hop-count", row.arrived)
		before := maps.Clone(msg.Metadata)
		out, err := middleware(guard.Rules{MaxHops: row.max, Required: []string{"tenant"}})(
			func(m *message.Message) ([]*message.Message, error) { return row.out(m), nil })(msg)
		var counts []string
		for _, m := range out {
			if m == nil {
				counts = append(counts, "nil")
				continue
			}
			counts = append(counts, m.Metadata.Get("x-hop-count"))
		}
		testkit.Check(t, err == nil && slices.Equal(counts, row.want) && maps.Equal(msg.Metadata, before),
			"%s: counts %v, on the source %v, error %v", name, counts, msg.Metadata, err)
	}
}
