package privacy_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/privacy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standard is the Redactor of a part without one.
var standard *privacy.Redactor

// Feature D14: a credential in a text is masked, in every way that programs write it, and what stands around it stays.
func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                     "",
		"password=hunter2":                                     "password=[redacted]",
		"PGPASSWORD=hunter2 psql":                              "PGPASSWORD=[redacted] psql",
		"password = hunter2, user = bob":                       "password = [redacted], user = bob",
		"host=db password='hun ter2' port=1":                   "host=db password='[redacted]' port=1",
		"password=hun,ter2 x":                                  "password=[redacted] x",
		"login(password=hunter2) failed":                       "login(password=[redacted]) failed",
		"{User:bob Password:hunter2 Age:7}":                    "{User:bob Password:[redacted] Age:7}",
		`main.User{Name:"b", Password:"h\"x"}`:                 `main.User{Name:"b", Password:"[redacted]"}`,
		`bad body {"user":"bob","password":"hunter2","n":1}`:   `bad body {"user":"bob","password":"[redacted]","n":1}`,
		`{"db_password" : "hun\"ter2"}`:                        `{"db_password" : "[redacted]"}`,
		`body "{\"password\":\"hunter2\",\"n\":1}"`:            `body "{\"password\":\"[redacted]\",\"n\":1}"`,
		`{"secret":{"value":"x y"},"n":1}`:                     `{"secret":{[redacted]},"n":1}`,
		"api key: 9f8e7d6c5b":                                  "api key: [redacted]",
		"map[X-Api-Key:[abc] Accept:[*/*]]":                    "map[X-Api-Key:[[redacted]] Accept:[*/*]]",
		"Authorization: Bearer abc.def\nAccept: x":             "Authorization: [redacted]\nAccept: x",
		`"Authorization: Basic YWJj" was sent`:                 `"Authorization: [redacted]" was sent`,
		"Cookie: a=b; sid=\"x y\"; c=d\r\nX: y":                "Cookie: [redacted]\r\nX: y",
		"sent Bearer abcdef123 to":                             "sent Bearer [redacted] to",
		"get https://x/y?a=1&access_token=abc123&b=2 failed":   "get https://x/y?a=1&access_token=[redacted]&b=2 failed",
		"postgres://ops:hunter2@db:5432/shop?x=y":              "postgres://ops:[redacted]@db:5432/shop?x=y",
		"postgres://ops:hun/t@er#2@db/shop":                    "postgres://ops:[redacted]@db/shop",
		"nats://a:x1@h1:4222,nats://b:x2@h2:4222":              "nats://a:[redacted]@h1:4222,nats://b:[redacted]@h2:4222",
		"https://ghtoken@github.com/x":                         "https://[redacted]@github.com/x",
		"dial ops:hunter2@tcp(db:3306)/shop?a=b":               "dial ops:[redacted]@tcp(db:3306)/shop?a=b",
		"q?x=%7B%22password%22%3A%22hunter2%22%7D&n=1":         "q?x=%7B%22password%22%3A%22[redacted]%22%7D&n=1",
		"q?password%3Dhunter2%26n%3D1":                         "q?password%3D[redacted]%26n%3D1",
		"card 4111 1111 1111 1111 refused":                     "card [redacted] refused",
		"cards 378282246310005,5555-5555-5555-4444":            "cards [redacted],[redacted]",
		"12345678 4111 1111 1111 1111 2027":                    "12345678 [redacted] 2027",
		"key AKIAIOSFODNN7EXAMPLE of":                          "key [redacted] of",
		"clone ghp_0123456789abcdefghijABCDEFGHIJ0123":         "clone [redacted]",
		"post https://hooks.slack.com/services/T0/B0/XyZ: 404": "post https://hooks.slack.com/services/[redacted]: 404",
		"jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln bad":    "jwt [redacted] bad",
		"-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nnext":             "[redacted]\nnext",
		`"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n", "next"`:                     `"[redacted]\n", "next"`,
		"-----BEGIN EC PRIVATE KEY-----\nMIIEowIBAAKCAQ":                                               "[redacted]",
		"<wsse:Password Type=\"t\">hunter2</wsse:Password><a>b</a>":                                    "<wsse:Password Type=\"t\">[redacted]</wsse:Password><a>b</a>",
		"mysql --password hunter2 --host db":                                                           "mysql --password [redacted] --host db",
		`ALTER USER ops PASSWORD 'hunter2'`:                                                            `ALTER USER ops PASSWORD '[redacted]'`,
		`CREATE USER ops IDENTIFIED BY 'hunter2' x`:                                                    `CREATE USER ops IDENTIFIED BY '[redacted]' x`,
		`login: wrong password "hunter2"`:                                                              `login: wrong password "[redacted]"`,
		"login with password: swordfish":                                                               "login with password: [redacted]",
		":password => \"x\"":                                                                           ":password => \"[redacted]\"",
		"AccountKey=abc+/def==;EndpointSuffix=core":                                                    "AccountKey=[redacted];EndpointSuffix=core",
		"card 4111\u00a01111\u00a01111\u00a01111 declined":                                             "card [redacted] declined",
		"card 4111\u20131111\u20131111\u20131111 declined":                                             "card [redacted] declined",
		"databricks dapi0123456789abcdef0123456789abcdef failed":                                       "databricks [redacted] failed",
		"post https://api.telegram.org/bot110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/sendMessage":    "post https://api.telegram.org/bot[redacted]/sendMessage",
		"{Host:db2 DBPass:Zx9fmt04}":                                                                   "{Host:db2 DBPass:[redacted]}",
		"{\"secrets\":[\"Zx9json05\",\"b\"],\"n\":1}":                                                  "{\"secrets\":[[redacted]],\"n\":1}",
		"in " + base64.StdEncoding.EncodeToString([]byte(`{"user":"bob","password":"hunter2"}`)) + ".": "in [redacted].",
		"q=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte("host=db password=hunter2"))):  "q=[redacted]",
	} {
		got := (*privacy.Redactor)(nil).Text(text)
		testkit.Check(t, got == want, "%s\n got  %s\n want %s", text, got, want)
		testkit.Equal(t, "masked again", standard.Text(got), got)
		testkit.Equal(t, "None masks", privacy.None().Text(text), text)
	}
}

// Feature D14: what is no secret stays readable.
func TestTextReadable(t *testing.T) {
	for _, text := range []string{
		"get secret \"db-credentials\": not found",
		"unexpected token: }",
		"password: must have 8 characters",
		"authorization: denied",
		"next_page_token=abc, max_tokens: 4096",
		"basic authentication is off, bearer authentication too",
		"Bearer realm=\"x\"",
		"https://medium.com/@someone/a-story",
		"https://registry.npmjs.org/left-pad@1.0.0?x=a@b",
		"http://host:8080/a@b",
		"ssh://git@github.com/x/y",
		"mail bob@example.com: no such user",
		"pkg/mod/github.com/jackc/pgx/v5@v5.7.1/conn.go:123 +0x1a4",
		"order 1234567890123456 at 1764000000000000000",
		"0.4111111111111111", "a4111111111111111", "4111111111111111a", "4111111111111112", "uuid 41111111-1111-4111-8111-111111111111",
		"mapping: 5, spin=3, bypass=1, compass: north",
		"2024-01-01T10:00:00Z",
		"goroutine 1 [running]:\nmain.handle({0x14000112000, 0x5}, 0x3)\n\t/src/token/secret/main.go:42 +0x1d",
		"true is password: true, nil is token: <nil>, secret=null",
		"100% sure, 50%2 and \\ is a backslash",
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
		"SG.x, sk-short, AKIA, npm_x",
		"password is too short", "violates unique constraint \"users_token_key\"", "image@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"{\"prompt_tokens\":12,\"completion_tokens\":[1,2],\"usage\":{\"total_tokens\":9}}", "tokens: 12, secrets: 3",
		"password: |", "summary: |\n  text", "dapi0123456789abcdef", "https://api.telegram.org/botinfo",
		"mkdir -p x, mysqladmin -ping", "sudo -u admin:wheel x", "mysql failed\nmkdir -path", "docker run -u 1000:1000 curlimages/curl",
		"4111\u20131112, 1\u00a0234\u00a0567\u00a0890\u00a0123\u00a0456",
	} {
		testkit.Equal(t, "", standard.Text(text), text)
	}
}

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
		Patterns: []string{`customer (\w+)`, `MRN\d{6}`},
	})
	testkit.NoError(t, err)
	for text, want := range map[string]string{
		"customer Jane is unknown": "customer [redacted] is unknown",
		"no record MRN123456":      "no record [redacted]",
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
