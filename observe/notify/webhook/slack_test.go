package webhook_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/observe/notify"
	"github.com/watermill-spillway/spillway/observe/notify/webhook"
)

// Feature O4: a body for Slack has a text and blocks within Slack's bounds, and nothing of a message is a link, a
// mention or a format.
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

// A notice that something is over looks like one at a glance, and one without a link or a description has no empty
// blocks.
func TestSlackResolved(t *testing.T) {
	body, err := webhook.Slack(notify.Notice{Kind: notify.GuardOpen, Status: notify.StatusResolved, Title: "Resolved"})
	testkit.Check(t, err == nil && strings.Contains(string(body), "✅ Resolved") &&
		strings.Count(string(body), `"type":"section"`) == 1, "%s %v", body, err)
}
