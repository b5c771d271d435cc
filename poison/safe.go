package poison

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// keyWatermillID is where marshalers of Watermill keep a message's id among its metadata.
const keyWatermillID = "_watermill_message_uuid"

// isLine reports whether a transport with headers like those of HTTP keeps s: text in one line, without spaces at its
// ends.
func isLine(s string) bool {
	if s == "" {
		return true
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return s[0] != ' ' && s[len(s)-1] != ' ' && utf8.ValidString(s)
}

// isHeaderName reports whether key is a name that headers like those of HTTP may have (RFC 9110, 5.1), and means
// nothing to a transport.
func isHeaderName(key string) bool {
	return key != "" && key != keyWatermillID && !isOrder(key) && strings.IndexFunc(key, func(r rune) bool {
		return !isToken(r)
	}) < 0
}

func isToken(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z' ||
		r < utf8.RuneSelf && r > 0 && strings.IndexByte("!#$%&'*+-.^_`|~", byte(r)) >= 0
}

// isOrder reports whether key is an order to a NATS server: Nats-Rollup removes earlier messages from a stream,
// Nats-TTL ends the message itself, and Nats-Msg-Id swallows it.
func isOrder(key string) bool {
	const prefix = "nats-"
	return len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix)
}

// oneLine returns the head of text as a value of one line, at most limit bytes. Text that is no such line, or that
// begins with a quotation mark, becomes a JSON string.
func oneLine(text string, limit int) string {
	for room := limit; room > 0; {
		value := boundedtext.Text(text, room)
		if isLine(value) && !strings.HasPrefix(value, `"`) {
			return value
		}
		line := quoted(value)
		if len(line) <= limit {
			return line
		}
		// a byte of text has up to six in JSON, most have one
		room = min(room, len(value)) - max(1, (len(line)-limit)/2)
	}
	return ""
}

// quoted returns v as JSON without control characters, in one line.
func quoted(v any) string {
	var b strings.Builder
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	_ = to.Encode(v) // a string, or entries of strings
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}

// fromLine returns the text of which oneLine made value.
func fromLine(value string) string {
	if len(value) < 2 || value[0] != '"' {
		return value
	}
	var text string
	if json.Unmarshal([]byte(value), &text) != nil {
		return value
	}
	return text
}

// withheld stands for what a mask panicked over: it may be the very secret.
const withheld = "[withheld: the mask panicked]"

func (q *Queue) maskTexts(f *Failure) {
	mask := q.config.Privacy.Text
	latest := f.Description // the same as the last error of the history, as a rule
	f.Reason, f.Description, f.Stack = mask(f.Reason), mask(f.Description), mask(f.Stack)
	for i := range f.History {
		if err := &f.History[i].Error; *err == latest {
			*err = f.Description
		} else {
			*err = mask(*err)
		}
	}
}

func (q *Queue) maskMetadata(metadata message.Metadata) {
	if q.config.MaskMetadata == nil {
		return
	}
	for key, value := range metadata {
		metadata[key] = q.masked("MaskMetadata", value, func(value string) string {
			return q.config.MaskMetadata(key, value)
		})
	}
}

func (q *Queue) masked(field, value string, mask func(string) string) string {
	if value == "" {
		return ""
	}
	result := withheld
	if err := safecall.Call("poison."+field, func() error { result = mask(value); return nil }); err != nil {
		eventMaskPanicked.Write(q.config.Logger, nil, logging.Fields{logging.Config: "QueueConfig." + field})
	}
	return result
}
