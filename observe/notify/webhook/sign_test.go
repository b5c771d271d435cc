package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe/notify/webhook"
)

// signed are the headers of a request, made here anew from what docs/notices.md says.
func signed(secret []byte, id string, at time.Time, body []byte) http.Header {
	timestamp := fmt.Sprint(at.Unix())
	h := hmac.New(sha256.New, secret)
	_, _ = h.Write([]byte(id + "." + timestamp + "." + string(body)))
	return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))}}
}

// Feature O4: Verify accepts what was signed, and nothing that was changed, is old, or comes from the future.
func TestVerify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, now := []byte(`{"a":1}`), time.Now()
		testkit.NoError(t, webhook.Verify(secret, signed(secret, "1", now, body), body, 0))
		rotated := signed(secret, "1", now, body)
		rotated.Set("Webhook-Signature", "v1,AAAA v1a,xyz v2,"+rotated.Get("Webhook-Signature")+" "+rotated.Get("Webhook-Signature"))
		testkit.NoError(t, webhook.Verify(secret, rotated, body, 0)) // one of several signatures is right
		change := func(name, value string) http.Header {
			h := signed(secret, "1", now, body)
			h.Set(name, value)
			return h
		}
		for name, row := range map[string]struct {
			header http.Header
			body   string
			secret []byte
			want   error
		}{
			"another body":      {signed(secret, "1", now, body), `{"a":2}`, secret, webhook.ErrSignature},
			"another id":        {change("Webhook-Id", "2"), `{"a":1}`, secret, webhook.ErrSignature},
			"another time":      {change("Webhook-Timestamp", fmt.Sprint(now.Unix()+1)), `{"a":1}`, secret, webhook.ErrSignature},
			"no signature":      {change("Webhook-Signature", ""), `{"a":1}`, secret, webhook.ErrSignature},
			"not base64":        {change("Webhook-Signature", "v1,%%%"), `{"a":1}`, secret, webhook.ErrSignature},
			"no headers":        {http.Header{}, `{"a":1}`, secret, webhook.ErrSignature},
			"an empty secret":   {signed(nil, "1", now, body), `{"a":1}`, nil, webhook.ErrSignature},
			"another secret":    {signed([]byte("another"), "1", now, body), `{"a":1}`, secret, webhook.ErrSignature},
			"6 minutes old":     {signed(secret, "1", now.Add(-6*time.Minute), body), `{"a":1}`, secret, webhook.ErrTimestamp},
			"from the future":   {signed(secret, "1", now.Add(6*time.Minute), body), `{"a":1}`, secret, webhook.ErrTimestamp},
			"from a far future": {signed(secret, "1", time.Unix(1<<60, 0), body), `{"a":1}`, secret, webhook.ErrTimestamp},
		} {
			err := webhook.Verify(row.secret, row.header, []byte(row.body), 0)
			testkit.Check(t, errors.Is(err, row.want), "%s: %v, want %v", name, err, row.want)
		}
		time.Sleep(4 * time.Minute)
		testkit.NoError(t, webhook.Verify(secret, signed(secret, "1", now, body), body, 0))
		testkit.Is(t, webhook.Verify(secret, signed(secret, "1", now, body), body, time.Minute), webhook.ErrTimestamp)
	})
}

// Feature O4: a body for Slack keeps Slack's bounds, and nothing of a message is a link, a mention or a format.
func TestSlack(t *testing.T) {
	for _, hostile := range []string{
		"plain", "<!channel> <!here> <@U024BE7LH> <#C123|x>", "@channel @here @all", "[click](https://evil.example.com)", "<https://evil.example.com|Open>",
		"*bold* _it_ ~x~ `code` ```block``` > quote", "a & b < c > d", strings.Repeat("&", 5000), strings.Repeat("@a", 5000), strings.Repeat("x", 100_000), strings.Repeat("é", 4000), "https://evil.example.com",
	} {
		n := notice
		n.Topic, n.Handler, n.Reason, n.Description, n.Service, n.Title, n.Link = hostile, hostile, hostile, hostile, hostile, "New: "+hostile, "https://ok.example.com/?a=1&b=<!channel>|x"
		n.Missed = 7
		body := testkit.Must(webhook.Slack(n))
		var parsed struct {
			Text      string
			Parse     string
			Mrkdwn    bool
			LinkNames bool `json:"link_names"`
			Blocks    []struct {
				Type   string
				Text   *struct{ Type, Text string }
				Fields []struct{ Type, Text string }
			}
		}
		testkit.NoError(t, json.Unmarshal(body, &parsed))
		testkit.Require(t, parsed.Parse == "none" && !parsed.Mrkdwn && !parsed.LinkNames && len(parsed.Blocks) == 4 &&
			parsed.Blocks[0].Type == "header", "%s", body)
		texts, links := []string{parsed.Text}, 0
		for _, b := range parsed.Blocks {
			testkit.Check(t, len(b.Fields) <= 10, "%d fields", len(b.Fields))
			for _, f := range b.Fields {
				testkit.Check(t, f.Type == "plain_text" && utf8.RuneCountInString(f.Text) <= 2000, "%+v", f)
				texts = append(texts, f.Text)
			}
			switch {
			case b.Text == nil:
			case b.Text.Type == "mrkdwn":
				links++
				testkit.Check(t, b.Text.Text == "<https://ok.example.com/?a=1&amp;b=%3C!channel%3E%7Cx|Open>",
					"%v", b.Text.Text)
			default:
				if n := utf8.RuneCountInString(b.Text.Text); b.Type == "header" && n > 150 || n > 3000 {
					t.Errorf("a %s of %d characters", b.Type, n)
				}
				texts = append(texts, b.Text.Text)
			}
		}
		testkit.Check(t, links == 1, "%d links", links)
		for _, text := range texts {
			testkit.Check(t, !active.MatchString(text), "%q is active in %.200q", active.FindString(text), text)
		}
	}
}

// active is what a chat makes a link or a mention of.
var active = regexp.MustCompile(`[<>]|&[^alg]|@[a-zA-Z]|\]\(|://`)
