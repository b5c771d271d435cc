package privacy_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/privacy"
)

func fuzzed(t testing.TB) *privacy.Redactor {
	return testkit.Must(privacy.New(privacy.Rules{Patterns: []string{`customer (\w+)`, `MRN\d{6}`}, Payload: []string{"$.users[*].name", "$..card", "$.a['b'][0]"}}))
}

// Feature D14: masking a text never panics, stays within its bound, and changes nothing the second time.
func FuzzText(f *testing.F) {
	for _, seed := range []string{
		"password=[redacted]x", "password=%5Bredacted%5D", `{"password":"a\"b"}`, "a://b:c@d/@e", "Authorization: [[redacted]", "token:[redacted", "pin={{}[redacted]}",
		"cGFzc3dvcmQ9aHVudGVyMg==", "4111-1111-1111-1111", `\u0070assword=x`, "-----BEGIN PRIVATE KEY-----", "customer customer x", "[redacted:p@h:1/",
	} {
		f.Add(seed)
	}
	r := fuzzed(f)
	f.Fuzz(func(t *testing.T, text string) {
		once := r.Text(text)
		testkit.Require(t, len(once) <= privacy.MaxText && once != "[withheld: the mask panicked]",
			"%q: %d bytes, %.100q", text, len(once), once)
		again := r.Text(once)
		testkit.Require(t, again == once, "%q is masked to %q, and then to %q", text, once, again)
	})
}

// Feature D14: masking a payload never panics, leaves JSON that was valid valid, and changes nothing the second time.
func FuzzPayload(f *testing.F) {
	for _, seed := range []string{
		`{"users":[{"name":"x"}],"card":{"a":[1]},"a":{"b":["c"]}}`, `{"password":"x"`, `[redacted]`, `["[redacted]`, `{"a":[redacted]`, "{}\n{}", `"\ud800password=x"`,
		"65266666655555266\x03666", `{"card":`, `{"password":1e5,"b":"amqp://a:b@c/"}`, `[[[`, ` "`, "4110100000010",
	} {
		f.Add([]byte(seed))
	}
	r := fuzzed(f)
	f.Fuzz(func(t *testing.T, payload []byte) {
		before := bytes.Clone(payload)
		once := r.Payload(payload)
		testkit.Require(t, bytes.Equal(payload, before) && string(once) != "[withheld: the mask panicked]",
			"%q, was %q: %q", payload, before, once)
		testkit.Require(t, !json.Valid(payload) || json.Valid(once),
			"%q is masked to %q, which is no JSON", payload, once)
		again := r.Payload(once)
		testkit.Require(t, bytes.Equal(again, once), "%q is masked to %q, and then to %q", payload, once, again)
	})
}
