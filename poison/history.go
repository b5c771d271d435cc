package poison

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// maxCause bounds the text of an attempt's error.
const maxCause = 256

// entry is an attempt as the history has it.
type entry struct {
	At    string `json:"at"`
	Class string `json:"class"`
	Error string `json:"error,omitempty"`
}

// encodeHistory writes the attempts as a JSON array of entries in one line, because some transports turn a newline into
// a space. The oldest go first if the line does not fit.
func encodeHistory(history []classify.Attempt, limit int) string {
	var room [512]byte
	line, behind := room[:0], 0 // the first attempt that fits has its bracket or comma at behind
	for _, a := range history {
		line = append(line, ",{\"at\":\""...)
		line = a.At.UTC().AppendFormat(line, time.RFC3339Nano)
		line = append(append(append(line, `","class":"`...), a.Class.String()...), '"')
		if a.Error != "" {
			line = appendJSON(append(line, `,"error":`...), boundedtext.Text(a.Error, maxCause))
		}
		line = append(line, '}')
	}
	for len(line)-behind+1 > limit {
		next := bytes.Index(line[min(behind+1, len(line)):], []byte(",{\"at\":\""))
		if next < 0 {
			return ""
		}
		behind += next + 1
	}
	if len(line) == 0 {
		return ""
	}
	line[behind] = '['
	return string(append(line[behind:], ']'))
}

// decodeHistory reads what can be read of a history: of one that was cut, the attempts before the cut.
func decodeHistory(text string) (history []classify.Attempt) {
	from := json.NewDecoder(strings.NewReader(text))
	if begin, err := from.Token(); err != nil || begin != json.Delim('[') {
		return nil
	}
	for from.More() {
		var a entry
		if err := from.Decode(&a); err != nil {
			return history
		}
		history = noted(history, a)
	}
	return history
}

// noted appends an attempt, unless its time or class cannot be one.
func noted(history []classify.Attempt, a entry) []classify.Attempt {
	var class classify.Class
	at := boundedtext.Time(a.At)
	if class.UnmarshalText([]byte(a.Class)) != nil || at.IsZero() {
		return history
	}
	return attempts.Latest(append(history,
		classify.Attempt{At: at, Class: class, Error: boundedtext.Text(a.Error, maxCause)}))
}
