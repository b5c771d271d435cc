package webhook

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/observe/notify"
)

// Slack is the body of an incoming webhook of Slack, and of what is compatible: a text for the notification, and
// blocks. Values from messages stand in blocks of plain text, in which Slack finds neither links nor names. They are
// escaped, and mention no person and no channel, also where a compatible server shows the text as Markdown. Set
// Config.Body to Slack.
func Slack(n notify.Notice) ([]byte, error) {
	blocks := []any{
		block{"type": "header", "text": plain(mark(n)+" "+n.Title, 150)},
		block{"type": "section", "fields": fields(n)},
	}
	if n.Description != "" {
		blocks = append(blocks, block{"type": "section", "text": plain(n.Description, 1000)})
	}
	if link := slackLink(n.Link); link != "" {
		blocks = append(blocks, block{"type": "section", "text": block{"type": "mrkdwn", "text": link}})
	}
	return json.Marshal(block{
		"text": escaped(mark(n) + " " + n.Title), "mrkdwn": false, "parse": "none", "link_names": false,
		"unfurl_links": false, "unfurl_media": false,
		"blocks": blocks,
	})
}

type block map[string]any

// mark says at a glance what the notice is.
func mark(n notify.Notice) string {
	if n.Status == notify.StatusResolved {
		return "✅"
	}
	return "⚠️"
}

// fields are at most 10, which is Slack's bound.
func fields(n notify.Notice) (all []any) {
	add := func(name, value string) {
		if value != "" && len(all) < 10 {
			all = append(all, plain(name+": "+value, 300))
		}
	}
	add("service", n.Service)
	add("handler", n.Handler)
	add("topic", n.Topic)
	add("class", n.Class)
	add("reason", n.Reason)
	add("cause", n.Cause)
	add("count", fmt.Sprintf("%d, %d in all", n.Count, n.Total))
	add("since", n.First.Format(time.RFC3339))
	add("instance", n.Instance)
	if n.Missed > 0 {
		add("missed", fmt.Sprintf("%d notices before this one were not sent", n.Missed))
	}
	return all
}

// plain is an object of plain text of at most so many characters, as it is sent: Slack refuses a body with a longer
// one.
func plain(text string, most int) block {
	short := escaped(text)
	for head := []rune(text); utf8.RuneCountInString(short) > most; short = escaped(string(head)) + "…" {
		head = head[:min(len(head)-1, most-1)]
	}
	return block{"type": "plain_text", "emoji": false, "text": short}
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// escaped is a text as Slack's format has it.
func escaped(text string) string { return escape.Replace(defused(text)) }

// defused mentions no person or channel, and has no link, also where a server reads Markdown or names in plain text: a
// space of no width stands behind what begins them.
var defuse = strings.NewReplacer("@", "@\u200b", "](", "]\u200b(", "://", ":\u200b//")

func defused(text string) string { return defuse.Replace(text) }

// slackLink is a link in Slack's format, or "".
func slackLink(link string) string {
	u, err := url.Parse(link)
	if link == "" || err != nil {
		return ""
	}
	address := strings.NewReplacer("<", "%3C", ">", "%3E", "|", "%7C", "\"", "%22", " ", "%20").Replace(u.String())
	return "<" + strings.ReplaceAll(address, "&", "&amp;") + "|Open>"
}
