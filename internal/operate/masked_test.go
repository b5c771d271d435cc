package operate

import (
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

func redactor(t *testing.T) *privacy.Redactor {
	t.Helper()
	r := testkit.Must(privacy.New(privacy.Rules{Metadata: []string{"customer"}, Payload: []string{"$.card.number", "$.rows[0].name", "$..iban"}}))
	return r
}

// Feature D13: what an edit says of a message is masked as the message would be, in each form that an edit has.
func TestEdit(t *testing.T) {
	r, payload := redactor(t), `{"card":{"number":"4711"},"password":"secret1","currency":"EUR"}`
	e := campaigns.Edit{
		Payload: &payload, Merge: []byte(payload), Set: map[string]string{"customer": "secret2", "tenant": "blue"},
		Patch: []byte(`[{"op":"add","path":"/card/number","value":"4711"},{"op":"add","path":"/card","value":{"number":"4711","kind":"visa"}},` +
			`{"op":"test","path":"/rows/0/name","value":"secret3"},{"op":"add","path":"/rows/-","value":{"name":"secret4"}},{"op":"add","path":"/x/9999/y","value":"secret5"},` +
			`{"op":"add","path":"/a~1b/iban","value":"secret6"},{"op":"replace","path":"","value":{"password":"secret7"}},{"op":"add","path":"/currency","value":"EUR"},{"op":"remove","path":"/y"}]`),
	}
	whole := inside.EditText(&e)
	for _, shown := range []string{inside.EditText(maskedEdit(r, &e)), maskedDetail(r, whole), maskedDetail(r, whole[:len(whole)-40])} {
		testkit.Check(t, !strings.Contains(shown, "4711") && !strings.Contains(shown, "secret"), "%s", shown)
	}
	shown := inside.EditText(maskedEdit(r, &e))
	for _, want := range []string{`"path":"/currency","value":"EUR"`, `"kind":"visa"`, `"tenant":"blue"`, `"path":"/y"`, `\"currency\":\"EUR\"`} {
		testkit.Check(t, strings.Contains(shown, want), "%s lacks %s", shown, want)
	}
	testkit.Check(t, inside.EditText(&e) == whole, "the edit itself was changed")
}

// Feature D13: an edit that is no edit, and details of all kinds, are masked and never fail.
func TestDetail(t *testing.T) {
	r := redactor(t)
	for detail, want := range map[string]string{
		"": "", "300 letters": "300 letters", "{": privacy.Mark, `{"a":1}`: `{"a":1}`, "password=secret1": "password=" + privacy.Mark,
	} {
		if got := maskedDetail(r, detail); got != want {
			t.Errorf("%q became %q, want %q", detail, got, want)
		}
	}
	for _, patch := range []string{`{}`, `[{"path":1,"value":"secret1"}]`, `[{"path":"/a","value":{"password":"secret1"}}]`, `[{"path":"` + strings.Repeat("/a", 60) + `","value":"secret1"}]`} {
		if got := inside.EditText(maskedEdit(r, &campaigns.Edit{Patch: []byte(patch)})); strings.Contains(got, "secret1") {
			t.Errorf("%s", got)
		}
	}
	testkit.Check(t, maskedEdit(r, nil) == nil, "no edit became one")
	shown := maskedRequest(r, campaigns.Request{Edit: &campaigns.Edit{Set: map[string]string{"customer": "ann"}}})
	testkit.Check(t, shown.Edit.Set["customer"] == privacy.Mark, "%+v", shown.Edit)
}
