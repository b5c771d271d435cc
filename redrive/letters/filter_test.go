package letters

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature V5: the fields of a filter that know causes choose letters of a topic as they choose rows of a store.
func TestFilter_matchesCauses(t *testing.T) {
	l := poison.Letter{Original: message.NewMessage("1", nil), DeadLetterTopic: "orders.dlq", Redrive: poison.Redrive{ID: "drain-7"}}
	l.Failure.Type, l.Failure.Description = "*mail.Error", "mailbox 7 is full"
	same := l
	same.Failure.Description = "mailbox 8 is full"
	cause := causeOf("orders.dlq", &same).hash()
	for _, f := range []Filter{{Types: []string{"*mail.Error"}}, {Description: "7 is"}, {RedriveIDs: []string{"drain-7"}}, {Causes: []string{cause}}} {
		testkit.Check(t, f.Matches(l), "%+v does not choose the letter", f)
	}
	for _, f := range []Filter{{Types: []string{"mail"}}, {Description: "8 is"}, {RedriveIDs: []string{"drain-8"}}, {Causes: []string{"x"}}} {
		testkit.Check(t, !f.Matches(l), "%+v chooses the letter", f)
	}
	l.DeadLetterTopic = "other.dlq"
	testkit.Check(t, !(&Filter{Causes: []string{cause}}).Matches(l),
		"the cause of another dead-letter topic is another one")
}

// Feature V5: a filter can be kept as JSON, whole, with the names of classes.
func TestFilter_json(t *testing.T) {
	whole := Filter{
		Topics: []string{"a"}, NotTopics: []string{"b"}, NoOrigin: true, DeadLetterTopics: []string{"c"}, Handlers: []string{"d"},
		Classes: []classify.Class{classify.ClassInvalid}, Reasons: []string{"e"}, Types: []string{"f"}, Description: "g",
		Causes: []string{"h"}, RedriveIDs: []string{"i"}, StackHash: "j", IDs: []string{"k"},
		Since: time.Unix(1, 5).UTC(), Until: time.Unix(2, 0).UTC(), Statuses: []Status{StatusRefused}, Metadata: map[string]string{"m": "n"}, Payload: "p", Leased: true, SealKeys: []string{"s"}, After: 1, NewestFirst: true, MaxSeq: 2, Limit: 3,
	}
	for i, v := 0, reflect.ValueOf(whole); i < v.NumField(); i++ {
		testkit.Check(t, !v.Type().Field(i).IsExported() || !v.Field(i).IsZero(),
			"the test leaves out %s", v.Type().Field(i).Name)
	}
	for want, f := range map[string]Filter{`{}`: {}, `"classes":["invalid"]`: whole} {
		text, err := json.Marshal(f)
		testkit.Check(t, err == nil && strings.Contains(string(text), want), "%s, %v", text, err)
		var back Filter
		err = json.Unmarshal(text, &back)
		testkit.Check(t, err == nil && reflect.DeepEqual(back, f), "%+v, %v", back, err)
	}
	testkit.Check(t, json.Unmarshal([]byte(`{"classes":["worse"]}`), &Filter{}) != nil, "an unknown class is an error")
}

// Feature V9: what differs from message to message does not make a cause, and everything else does.
func TestFolded(t *testing.T) {
	for description, want := range map[string]string{
		"disk full":  "disk full",
		"status 500": "status #",
		"order 5f1c7a9e-8a3b-4c1d-9e2f-001122334455 gone":     "order # gone",
		"0xc000012ab8: at 10:22:33.5 of 2026-03-01T12:00:00Z": "#: at # of #",
		"dial tcp 127.0.0.1:5432: connect: refused":           "dial tcp #: connect: refused",
		"a-b order-17 x_9":                          "a-b # #",
		`parse "a \"b\" 7": bad`:                    `parse "": bad`,
		`cut "without end 12 an`:                    `cut ""`,
		"duplicate entry 'Ann' for key 'mail'":      `duplicate entry "" for key ""`,
		"can't open the customer's 'file's' it":     `can't open the customer's "" it`,
		"  white \t\n space ":                       "white space",
		"größe 12 übel":                             "größe # übel",
		"a\xffb\x00":                                "a\xffb\x00",
		"no mail for ann.smith+x@mail.example.com.": "no mail for #.",
		"ask a@b": "ask #", "a @ b, @x, x@": "a @ b, @x, x@",
		"customer cus_NffrFeUfNV is gone":        "customer # is gone",
		"table_name and myLongVar_x":             "table_name and myLongVar_x",
		"at 2026-03-01 12:00:00 +0100 CET, then": "at # # # #, then",
		"at 12:00 UTC":                           "at # #", "code 7 EOF": "code # EOF",
		"user 'O''Brien' is 'x'": `user "" is ""`, "key '' is empty": `key "" is empty`,
		"«Ann» or “Bob” or „Cid“ or ‘Dan’ isn’t": `"" or "" or "" or "" isn’t`, "a » b": "a » b", "a « b": "a « b",
		"": "",
	} {
		got := folded(description)
		testkit.Check(t, got == want, "%q is folded to %q, want %q", description, got, want)
	}
	for _, long := range []string{strings.Repeat("word ", 1<<20), strings.Repeat("7 ", 1<<20), strings.Repeat(`"x"`, 1<<20), strings.Repeat("é", 1<<20), strings.Repeat("a.", 1<<20), strings.Repeat("«", 1<<20), strings.Repeat("'a", 1<<20)} {
		got := folded(long)
		testkit.Check(t, len(got) <= maxFolded && (!utf8.ValidString(long) || len(got) >= 1),
			"%.10q… is folded to %d bytes", long, len(got))
	}
}

// Features D15, I4, V12: a key says that a letter succeeded unless outputs may still come, or it was another's.
func TestAppliedKeySays(t *testing.T) {
	const soon, late = 1_000, 1_000_000 // milliseconds
	for _, row := range []struct {
		reason   string
		key      appliedKey
		storedAt int64
		want     bool
	}{
		{"timeout", appliedKey{published: true, at: 5, now: soon}, 9_000, true},
		{"timeout", appliedKey{at: 5, now: soon}, 9_000, false},
		{"timeout", appliedKey{at: 5, now: late}, 9_000, true},
		{classify.ReasonOutput, appliedKey{at: 5, now: late}, 9_000, false},
		{classify.ReasonOutput, appliedKey{published: true, at: 5, now: soon}, 9_000, true},
		{classify.ReasonKeyReused, appliedKey{published: true, at: 5, now: late}, 9_000, false},
		{classify.ReasonKeyReused, appliedKey{at: 10, now: soon}, 9_000, true},
	} {
		testkit.Equal(t, row.reason, row.key.says(redriven{reason: row.reason, storedAt: row.storedAt}), row.want)
	}
}
