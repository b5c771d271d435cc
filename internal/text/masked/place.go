package masked

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/privacy"
)

// maxDepth and maxIndex bound the documents that at makes up. Values of other places are masked.
const (
	maxDepth = 50
	maxIndex = 1000
)

// at masks a value as if it stood at its place in a document, so that rules find it by name and by path. A number in a
// JSON pointer can be an index or a name: the value is masked as both.
func at(r *privacy.Redactor, pointer string, value json.RawMessage) json.RawMessage {
	if pointer == "" {
		return valid(r.Payload(value))
	}
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	if len(tokens) > maxDepth {
		return mark
	}
	for i := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(tokens[i])
	}
	for _, lists := range []bool{true, false} {
		document, ok := around(tokens, value, lists)
		if !ok {
			return mark
		}
		if value, ok = within(r.Payload(document), tokens, lists); !ok {
			return mark
		}
	}
	return value
}

// around returns a document that has nothing but the value.
func around(tokens []string, value json.RawMessage, lists bool) (json.RawMessage, bool) {
	for i := len(tokens) - 1; i >= 0; i-- {
		var err error
		if n, is := index(tokens[i]); lists && is {
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

// within returns the value of a document that around made, unless something above the value is masked.
func within(document []byte, tokens []string, lists bool) (json.RawMessage, bool) {
	for _, token := range tokens {
		if n, is := index(token); lists && is {
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

// index returns the place in a list that a token can mean. The end of a list counts as its first place.
func index(token string) (int, bool) {
	if token == "-" {
		return 0, true
	}
	n, err := strconv.ParseUint(token, 10, 31)
	return int(n), err == nil
}
