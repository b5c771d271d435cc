package campaigns

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/text/erasedtext"
)

// forgetRequest returns a request without the values, and whether the edit had some of them.
func forgetRequest(text string, values []string) (request string, inEdit bool, err error) {
	r, err := decoded(text)
	if err != nil {
		return "", false, err
	}
	before, err := json.Marshal(r)
	if err != nil {
		return "", false, err
	}
	f := &r.Filter
	for i := range f.IDs {
		f.IDs[i] = erasedtext.Replace(f.IDs[i], values)
	}
	for key, value := range f.Metadata {
		f.Metadata[key] = erasedtext.Replace(value, values)
	}
	f.Description, f.Payload = erasedtext.Replace(f.Description, values), erasedtext.Replace(f.Payload, values)
	r.Reason = erasedtext.Replace(r.Reason, values)
	if e := r.Edit; e != nil {
		was := inside.EditText(e)
		for key, value := range e.Set {
			e.Set[key] = erasedtext.Replace(value, values)
		}
		if e.Payload != nil {
			text := forgetPayload(*e.Payload, values)
			e.Payload = &text
		}
		if e.Merge, err = forgetJSON(e.Merge, values); err == nil {
			e.Patch, err = forgetJSON(e.Patch, values)
		}
		if err != nil {
			return "", false, err
		}
		inEdit = inside.EditText(e) != was
	}
	after, err := json.Marshal(r)
	if err != nil || bytes.Equal(before, after) {
		return text, false, err
	}
	return string(after), inEdit, nil
}

// forgetPayload takes values from a payload: from JSON by its texts and numbers.
func forgetPayload(payload string, values []string) string {
	if json.Valid([]byte(payload)) {
		if text, err := forgetJSON(json.RawMessage(payload), values); err == nil {
			payload = string(text)
		}
	}
	return erasedtext.Replace(payload, values)
}

// forgetJSON takes values from the texts and numbers of a JSON text. Without such a value the text stays as it is.
func forgetJSON(text json.RawMessage, values []string) (json.RawMessage, error) {
	if len(text) == 0 {
		return text, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("read an edit: %w", err)
	}
	changed := false
	value = forgetValue(value, values, &changed)
	if !changed {
		return text, nil
	}
	return json.Marshal(value)
}

func forgetValue(value any, values []string, changed *bool) any {
	switch v := value.(type) {
	case string:
		is := erasedtext.Replace(v, values)
		*changed = *changed || is != v
		return is
	case json.Number:
		if erasedtext.Replace(v.String(), values) == erasedtext.Word {
			*changed = true
			return erasedtext.Word
		}
	case []any:
		for i := range v {
			v[i] = forgetValue(v[i], values, changed)
		}
	case map[string]any:
		for key := range v {
			v[key] = forgetValue(v[key], values, changed)
		}
	}
	return value
}
