package privacy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/privacy"
)

func redactorOf(t testing.TB, paths ...string) *privacy.Redactor {
	t.Helper()
	return testkit.Must(privacy.New(privacy.Rules{Payload: paths}))
}

// Feature D14: a path masks what it leads to, and all other bytes of the payload stay.
func TestPayloadPaths(t *testing.T) {
	const in = `{ "card": {"number": 4242, "exp":"12/27"}, "users":[{"name":"Jane","id":1.50},{"id":2,"Name":"J\u00f6"}], "last name":"Doe", "a":{"b":{"name":["x",{"y":1}]}} }`
	for path, want := range map[string]string{
		"$.card.number":     `{ "card": {"number": "[redacted]", "exp":"12/27"}, "users":[{"name":"Jane","id":1.50},{"id":2,"Name":"J\u00f6"}], "last name":"Doe", "a":{"b":{"name":["x",{"y":1}]}} }`,
		"$.card":            `{ "card": "[redacted]", "users":[{"name":"Jane","id":1.50},{"id":2,"Name":"J\u00f6"}], "last name":"Doe", "a":{"b":{"name":["x",{"y":1}]}} }`,
		"$.users[*].name":   `{ "card": {"number": 4242, "exp":"12/27"}, "users":[{"name":"[redacted]","id":1.50},{"id":2,"Name":"[redacted]"}], "last name":"Doe", "a":{"b":{"name":["x",{"y":1}]}} }`,
		"$.users[1]":        `{ "card": {"number": 4242, "exp":"12/27"}, "users":[{"name":"Jane","id":1.50},"[redacted]"], "last name":"Doe", "a":{"b":{"name":["x",{"y":1}]}} }`,
		"$..name":           `{ "card": {"number": 4242, "exp":"12/27"}, "users":[{"name":"[redacted]","id":1.50},{"id":2,"Name":"[redacted]"}], "last name":"Doe", "a":{"b":{"name":"[redacted]"}} }`,
		"$['last name']":    `{ "card": {"number": 4242, "exp":"12/27"}, "users":[{"name":"Jane","id":1.50},{"id":2,"Name":"J\u00f6"}], "last name":"[redacted]", "a":{"b":{"name":["x",{"y":1}]}} }`,
		"$.a..y":            `{ "card": {"number": 4242, "exp":"12/27"}, "users":[{"name":"Jane","id":1.50},{"id":2,"Name":"J\u00f6"}], "last name":"Doe", "a":{"b":{"name":["x",{"y":"[redacted]"}]}} }`,
		"$..[0]":            `{ "card": {"number": 4242, "exp":"12/27"}, "users":["[redacted]",{"id":2,"Name":"J\u00f6"}], "last name":"Doe", "a":{"b":{"name":["[redacted]",{"y":1}]}} }`,
		"$.*":               `{ "card": "[redacted]", "users":"[redacted]", "last name":"[redacted]", "a":"[redacted]" }`,
		"$":                 `"[redacted]"`,
		"$.users.name":      in,
		"$.nothing..at.all": in,
	} {
		got := string(redactorOf(t, path).Payload([]byte(in)))
		testkit.Check(t, got == want, "%s\n got  %s\n want %s", path, got, want)
		testkit.Check(t, json.Valid([]byte(got)), "%s: no JSON", path)
	}
}

// Feature D14: by default the names of secrets are masked in a payload, and credentials within its texts; what is no
// JSON is a text.
func TestPayload(t *testing.T) {
	for in, want := range map[string]string{
		`{"Password":"x","n":{"client_secret":5},"token":{"a":["b"]},"secret":null,"has_password":true,"api_key":""}`: `{"Password":"[redacted]","n":{"client_secret":"[redacted]"},"token":"[redacted]","secret":null,"has_password":true,"api_key":""}`,
		`{"url":"amqp://a:b@h/","note":"<b> & card 4111 1111 1111 1111"}`:                                             `{"url":"amqp://a:[redacted]@h/","note":"<b> & card [redacted]"}`,
		`{"secrets":["a","b"],"n":1}`: `{"secrets":"[redacted]","n":1}`,
		`{"secrets":3,"passwords":"x","total_tokens":9,"tokens":[1,2],"tokensByUser":{"a":1}}`: `{"secrets":3,"passwords":"[redacted]","total_tokens":9,"tokens":[1,2],"tokensByUser":{"a":1}}`,
		`{"p\u0061ssword":"x"}`:                           `{"p\u0061ssword":"[redacted]"}`,
		`{"a":4111111111111111,"b":[4111111111111111.5]}`: `{"a":"[redacted]","b":[4111111111111111.5]}`,
		`{"4111111111111111":1}`:                          `{"[redacted]":1}`,
		`{"body":"{\"password\":\"x\"}"}`:                 `{"body":"{\"password\":\"[redacted]\"}"}`,
		"{\"password\":1}\n{\"password\":2}\n":            "{\"password\":\"[redacted]\"}\n{\"password\":\"[redacted]\"}\n",
		`"password=x"`:                                    `"password=[redacted]"`,
		"user=bob&password=x&n=1":                         "user=bob&password=[redacted]&n=1",
		"[INFO] password=x":                               "[INFO] password=[redacted]",
		`{"password":"hunte`:                              `{"password":"[redacted]`,
		"\x00\x01\xff":                                    "\x00\x01\xff",
		"":                                                "",
	} {
		got := string((*privacy.Redactor)(nil).Payload([]byte(in)))
		testkit.Check(t, got == want, "%s\n got  %s\n want %s", in, got, want)
		testkit.Equal(t, "None masks", string(privacy.None().Payload([]byte(in))), in)
	}
}

// Feature D14: JSON that is cut or broken shows nothing behind the break, if a path is to be followed, and changes no
// more when it is masked again.
func TestPayloadBroken(t *testing.T) {
	r := redactorOf(t, "$.users[*].name", "$.card")
	whole := `{"users":[{"name":"Jane Fakename","id":1}],"card":{"number":"12345","x":[1,2]},"n":1}`
	for n := 1; n < len(whole); n++ {
		got := string(r.Payload([]byte(whole[:n])))
		testkit.Check(t, !strings.Contains(got, "Jane") && !strings.Contains(got, "12345") &&
			strings.Contains(got, privacy.Mark), "%s: %s", whole[:n], got)
		testkit.Equal(t, "masked again", string(r.Payload([]byte(got))), got)
	}
	deep := strings.Repeat(`{"a":`, 5000) + `"Jane"` + strings.Repeat("}", 5000)
	if got := string(r.Payload([]byte(deep))); strings.Contains(got, "Jane") || !strings.HasSuffix(got, privacy.Mark) {
		t.Error(got[len(got)-100:])
	}
}
