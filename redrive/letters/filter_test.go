package letters

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
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
		if !f.Matches(l) {
			t.Errorf("%+v does not choose the letter", f)
		}
	}
	for _, f := range []Filter{{Types: []string{"mail"}}, {Description: "8 is"}, {RedriveIDs: []string{"drain-8"}}, {Causes: []string{"x"}}} {
		if f.Matches(l) {
			t.Errorf("%+v chooses the letter", f)
		}
	}
	l.DeadLetterTopic = "other.dlq"
	if (&Filter{Causes: []string{cause}}).Matches(l) {
		t.Error("the cause of another dead-letter topic is another one")
	}
}

// Feature V5: a filter can be kept as JSON, whole, with the names of classes. One that chooses nothing in particular is
// empty.
func TestFilter_json(t *testing.T) {
	whole := Filter{
		Topics: []string{"a"}, NotTopics: []string{"b"}, NoOrigin: true, DeadLetterTopics: []string{"c"}, Handlers: []string{"d"},
		Classes: []classify.Class{classify.ClassInvalid}, Reasons: []string{"e"}, Types: []string{"f"}, Description: "g",
		Causes: []string{"h"}, RedriveIDs: []string{"i"}, StackHash: "j", IDs: []string{"k"},
		Since: time.Unix(1, 5).UTC(), Until: time.Unix(2, 0).UTC(), Statuses: []Status{StatusRefused}, Metadata: map[string]string{"m": "n"}, Payload: "p", Leased: true, SealKeys: []string{"s"}, After: 1, NewestFirst: true, MaxSeq: 2, Limit: 3,
	}
	for i, v := 0, reflect.ValueOf(whole); i < v.NumField(); i++ {
		if v.Type().Field(i).IsExported() && v.Field(i).IsZero() {
			t.Errorf("the test leaves out %s", v.Type().Field(i).Name)
		}
	}
	for want, f := range map[string]Filter{`{}`: {}, `"classes":["invalid"]`: whole} {
		text, err := json.Marshal(f)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s, %v", text, err)
		}
		var back Filter
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, f) {
			t.Errorf("%+v, %v", back, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"classes":["worse"]}`), &Filter{}); err == nil {
		t.Error("an unknown class is an error")
	}
}
