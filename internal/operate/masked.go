package operate

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// maskedMetadata returns values of metadata as they may be shown.
func maskedMetadata(r *privacy.Redactor, values map[string]string) map[string]string {
	if values == nil {
		return nil
	}
	shown := make(map[string]string, len(values))
	for key, value := range values {
		shown[key] = r.Metadata(key, value)
	}
	return shown
}

// maskedEdit returns an edit as it may be shown.
func maskedEdit(r *privacy.Redactor, e *campaigns.Edit) *campaigns.Edit {
	if e == nil {
		return nil
	}
	shown := *e
	shown.Set = maskedMetadata(r, e.Set)
	if e.Payload != nil {
		payload := string(r.Payload([]byte(*e.Payload)))
		shown.Payload = &payload
	}
	if len(e.PayloadBytes) > 0 && r != privacy.None() { // which values they have is known to their decoder alone
		payload := fmt.Sprintf("%s, %d bytes", privacy.Mark, len(e.PayloadBytes))
		shown.Payload, shown.PayloadBytes = &payload, nil
	}
	if len(e.Merge) > 0 {
		shown.Merge = validJSON(r.Payload(e.Merge))
	}
	if len(e.Patch) > 0 {
		shown.Patch = validJSON(maskedPatch(r, e.Patch))
	}
	return &shown
}

// maskedDetail returns the detail of an event as it may be shown: of an edited letter the detail is the edit.
func maskedDetail(r *privacy.Redactor, detail string) string {
	var e campaigns.Edit
	if !strings.HasPrefix(detail, "{") {
		return r.Text(detail)
	}
	if json.Unmarshal([]byte(detail), &e) != nil { // the record cut it, and what is left has no places
		return privacy.Mark
	}
	if e.Validate() != nil {
		return string(r.Payload([]byte(detail)))
	}
	return inside.EditText(maskedEdit(r, &e))
}

// maskedRequest returns the request of a campaign as it may be shown: its filter and its edit have values of messages.
func maskedRequest(r *privacy.Redactor, request campaigns.Request) campaigns.Request {
	f := &request.Filter
	f.Metadata = maskedMetadata(r, f.Metadata)
	f.Description, f.Payload = r.Text(f.Description), r.Text(f.Payload)
	request.Edit = maskedEdit(r, request.Edit)
	return request
}

// maskedPatch masks the values of a JSON patch.
func maskedPatch(r *privacy.Redactor, operations json.RawMessage) []byte {
	var all []map[string]json.RawMessage
	if json.Unmarshal(operations, &all) != nil {
		return r.Payload(operations)
	}
	for _, o := range all {
		value, ok := o["value"]
		if !ok {
			continue
		}
		var pointer string
		if json.Unmarshal(o["path"], &pointer) != nil {
			o["value"] = mark
			continue
		}
		o["value"] = maskedAt(r, pointer, value)
	}
	shown, err := json.Marshal(all)
	if err != nil {
		return mark
	}
	return shown
}

var mark = json.RawMessage(`"` + privacy.Mark + `"`)

// validJSON returns a text that may stand in JSON: the mask of a text that is cut is none.
func validJSON(text []byte) json.RawMessage {
	if json.Valid(text) {
		return text
	}
	return mark
}

// maxDepth and maxIndex bound the documents that at makes up. Values of other places are masked.
const (
	maxDepth = 50
	maxIndex = 1000
)

// maskedAt masks a value as if it stood at its place in a document, so that rules find it by name and by path. A number in a
// JSON pointer can be an index or a name: the value is masked as both.
func maskedAt(r *privacy.Redactor, pointer string, value json.RawMessage) json.RawMessage {
	if pointer == "" {
		return validJSON(r.Payload(value))
	}
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	if len(tokens) > maxDepth {
		return mark
	}
	for i := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(tokens[i])
	}
	for _, lists := range []bool{true, false} {
		document, ok := documentAround(tokens, value, lists)
		if !ok {
			return mark
		}
		if value, ok = valueWithin(r.Payload(document), tokens, lists); !ok {
			return mark
		}
	}
	return value
}

// documentAround returns a document that has nothing but the value.
func documentAround(tokens []string, value json.RawMessage, lists bool) (json.RawMessage, bool) {
	for i := len(tokens) - 1; i >= 0; i-- {
		var err error
		if n, is := indexOf(tokens[i]); lists && is {
			if n > maxIndex {
				return nil, false
			}
			list := make([]json.RawMessage, n+1)
			for j := range list {
				list[j] = json.RawMessage(`null`)
			}
			list[n] = value
			value, err = json.Marshal(list)
		} else {
			value, err = json.Marshal(map[string]json.RawMessage{tokens[i]: value})
		}
		if err != nil {
			return nil, false
		}
	}
	return value, true
}

// valueWithin returns the value of a document that around made, unless something above the value is masked.
func valueWithin(document []byte, tokens []string, lists bool) (json.RawMessage, bool) {
	for _, token := range tokens {
		if n, is := indexOf(token); lists && is {
			var list []json.RawMessage
			if json.Unmarshal(document, &list) != nil || n >= len(list) {
				return nil, false
			}
			document = list[n]
			continue
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(document, &object) != nil || object[token] == nil {
			return nil, false
		}
		document = object[token]
	}
	return document, json.Valid(document)
}

// indexOf returns the place in a list that a token can mean. The end of a list counts as its first place.
func indexOf(token string) (int, bool) {
	if token == "-" {
		return 0, true
	}
	n, err := strconv.ParseUint(token, 10, 31)
	return int(n), err == nil
}
