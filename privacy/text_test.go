package privacy_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/privacy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standard is the Redactor of a part without one.
var standard *privacy.Redactor

// Feature D14: a secret that begins before the cut is masked as a whole, wherever the cut falls.
func TestTextCut(t *testing.T) {
	const secret = "postgres://ops:hunter2@db/x 4111-1111-1111-1111 ghp_0123456789abcdefghijABCDEFGHIJ0123"
	for at := privacy.MaxText - len(secret) - 80; at < privacy.MaxText+10; at++ {
		got := standard.Text(strings.Repeat("x", at) + " " + secret + strings.Repeat(" y", 3000))
		if len(got) > privacy.MaxText || strings.Contains(got, "hunt") || strings.Contains(got, "4111-1") || strings.Contains(got, "ghp_0") {
			t.Fatalf("at %d: %d bytes, %s", at, len(got), got[len(got)-200:])
		}
		testkit.Require(t, strings.HasSuffix(got, " bytes in all]"), "the cut is not marked: %s", got[len(got)-40:])
	}
}

type private struct{ error }

func (p private) Error() string { return "connect postgres://ops:hunter2@db: " + p.error.Error() }

func (p private) Unwrap() error { return p.error }

// Feature D14: a masked error shows no secret, however it is printed or wrapped, and wraps what it was made of.
func TestError(t *testing.T) {
	var redactor *privacy.Redactor
	err := redactor.Error(fmt.Errorf("login with password: %w", errors.Join(errors.New("hunter2"), private{io.EOF})))
	for _, text := range []string{err.Error(), fmt.Sprintf("%v %+v %s %q", err, err, err, err), fmt.Sprint(fmt.Errorf("outer: %w", err))} {
		testkit.Check(t, !strings.Contains(text, "hunter2") && strings.Contains(text, "[redacted]"), "%v", text)
	}
	var as private
	testkit.Check(t, errors.Is(err, io.EOF) && errors.As(err, &as), "it does not wrap")
	testkit.Equal(t, "masked again", redactor.Error(err), err)
	testkit.Check(t, redactor.Error(nil) == nil && privacy.None().Error(io.EOF) == io.EOF, "nil, or None")
	text := redactor.Error(hostile{}).Error()
	testkit.Check(t, strings.Contains(text, "panicked"), "%v", text)
}

type hostile struct{}

func (hostile) Error() string { panic("hunter2") }

// Feature D14: rules add keys and patterns, and groups say what of a match is masked.
func TestRules(t *testing.T) {
	redactor, err := privacy.New(privacy.Rules{
		Metadata: []string{"customer", "x-person-*", "*.email"},
		Patterns: []string{`customer (\w+)`, `buyer (?P<name>\w+) of (\w+)`, `MRN\d{6}`},
	})
	testkit.NoError(t, err)
	for text, want := range map[string]string{
		"customer Jane is unknown": "customer [redacted] is unknown",
		"no record MRN123456":      "no record [redacted]",
		"buyer Jane of Acme left":  "buyer [redacted] of [redacted] left",
		"id MRN%31%32%33456":       "id [redacted]",
		"password=x":               "password=[redacted]",
	} {
		testkit.Equal(t, text, redactor.Text(text), want)
	}
	for key, masked := range map[string]bool{
		"customer": true, "Customer": true, "customers": false, "x-person-name": true, "buyer.email": true, "tenant": false,
		"Authorization": true, "db_password": true, "X-Api-Key": true, "apikey2": true, "set-cookie": true, "key": false, "token_type": false,
	} {
		got := redactor.Metadata(key, "blue")
		testkit.Check(t, (got == privacy.Mark) == masked && (masked || got == "blue"), "%s: %s", key, got)
	}
	testkit.Equal(t, "", redactor.Metadata("db", "amqp://a:b@h/"), "amqp://a:[redacted]@h/")
	only := testkit.Must(privacy.New(privacy.Rules{Metadata: []string{"customer"}, WithoutDefaults: true}))
	testkit.Check(t, only.Text("password=x") == "password=x" && only.Metadata("token", "x") == "x" &&
		only.Metadata("customer", "x") == privacy.Mark, "the defaults are not left out")
}

// Feature D14: a wrong rule is an error that names it, its value and what to give.
func TestNewRefuses(t *testing.T) {
	for text, rules := range map[string]privacy.Rules{
		`Rules.Patterns[0] is "("`:                     {Patterns: []string{"("}},
		`Rules.Patterns[1] is "x*", which matches the`: {Patterns: []string{"a", "x*"}},
		`Rules.Payload[0] is "card"`:                   {Payload: []string{"card"}},
		`Rules.Payload[0] is "$."`:                     {Payload: []string{"$."}},
		`Rules.Payload[0] is "$[-1]"`:                  {Payload: []string{"$[-1]"}},
		`Rules.Payload[0] is "$[?(@.a)]"`:              {Payload: []string{"$[?(@.a)]"}},
		`Rules.Payload[0] is "$[0:2]"`:                 {Payload: []string{"$[0:2]"}},
		`Rules.Payload[0] is "$['a"`:                   {Payload: []string{"$['a"}},
		`the path has 40 steps`:                        {Payload: []string{"$" + strings.Repeat(".a", 40)}},
		`Rules.Metadata[0] has 0 bytes`:                {Metadata: []string{""}},
		`Rules.Metadata has 300 entries`:               {Metadata: make([]string, 300)},
		`Rules.Patterns[0] has 5000 bytes`:             {Patterns: []string{strings.Repeat("x", 5000)}},
	} {
		testkit.Says(t, testkit.Err(privacy.New(rules)), text)
	}
}

// Feature D14: half of a secret, of a text that was cut before it was masked, is masked too.
func TestTextCutBefore(t *testing.T) {
	for text, want := range map[string]string{
		"dial postgres://ops:h,un":          "dial postgres://[redacted]",
		"card 4111 1111 11":                 "card [redacted]",
		"card 41111111":                     "card [redacted]",
		"key ghp_01234":                     "key [redacted]",
		"password='hun t":                   "password='[redacted]",
		"the connection was ref":            "the connection was ref",
		"Authorization: Bearer abc d":       "Authorization: [redacted]",
		`{"user":"bob","password":"hunt`:    `{"user":"bob","password":"[redacted]`,
		`{"user":"bob","note":"hunt2`:       `{"user":"bob","note":"[redacted]`,
		"-----BEGIN PRIVATE KEY-----\nMIIE": "[redacted]",
	} {
		cut := "…[cut, 300 bytes in all]"
		got := standard.Text(text + cut)
		if got != want+cut && got != want { // what is masked up to the end of its line takes the mark of the cut along
			t.Errorf("%s: %s", text, got)
		}
		testkit.Equal(t, "masked again", standard.Text(got), got)
	}
}

// Feature D14: a mask of the caller's own runs before the rules, also without rules; if it panics, the text is
// withheld.
func TestMask(t *testing.T) {
	hide := func(text string) string { return strings.ReplaceAll(text, "Jane", "****") }
	for want, rules := range map[string]privacy.Rules{
		"**** [redacted]":               {Mask: hide},
		"**** password=x":               {Mask: hide, WithoutDefaults: true},
		"[withheld: the mask panicked]": {Mask: func(string) string { panic("Jane") }},
		"ends":                          {Mask: func(string) string { return "ends" }, WithoutDefaults: true},
	} {
		r := testkit.Must(privacy.New(rules))
		want = strings.Replace(want, "[redacted]", "password=[redacted]", 1)
		testkit.Equal(t, "", r.Text("Jane password=x"), want)
		testkit.Equal(t, "", r.Error(errors.New("Jane password=x")).Error(), want)
	}
}
