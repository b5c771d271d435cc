// Package cloudevents shows CloudEvents in a console as one JSON document, and encodes what was edited: structured
// events in JSON, and binary ones, whose attributes are metadata as Kafka (ce_), AMQP (cloudEvents:) and HTTP (ce-)
// have them. Copy it, and give it to the console:
//
//	console.New(console.Config{Decode: cloudevents.Decode, Encode: cloudevents.Encode, ...})
package cloudevents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// MediaType is that of the text.
const MediaType = "application/cloudevents+json"

var prefixes = []string{"ce_", "ce-", "cloudevents:", "cloudevents_"}

type event = map[string]json.RawMessage

// Decode is for console.Config. What is no CloudEvent is shown as it is.
func Decode(_ context.Context, l letters.Letter) (text, mediaType string, err error) {
	e, binary, err := read(l)
	if e == nil || err != nil {
		return "", "", err
	}
	payload := []byte(l.Original.Payload)
	if coded := e["data_base64"]; coded != nil && !binary {
		if err := json.Unmarshal(coded, &payload); err != nil {
			return "", "", fmt.Errorf("data_base64: %w", err)
		}
	}
	if binary || e["data_base64"] != nil {
		delete(e, "data_base64")
		put(e, payload)
	}
	lines, err := json.MarshalIndent(e, "", "  ")
	return string(lines), MediaType, err
}

// Encode is for console.Config. The attributes of a binary event are metadata, and edited there.
func Encode(_ context.Context, l letters.Letter, text string) ([]byte, error) {
	was, binary, err := read(l)
	if err != nil {
		return nil, err
	}
	if was == nil {
		return nil, errors.New("the message is no CloudEvent")
	}
	var e event
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return nil, err
	}
	data, err := take(e)
	switch {
	case err != nil:
		return nil, err
	case e["specversion"] == nil:
		return nil, errors.New("specversion is missing: a CloudEvent has it")
	case !binary:
		if was["data_base64"] != nil {
			e["data_base64"], _ = json.Marshal(data) // bytes
		} else if data != nil {
			return []byte(text), nil
		}
		return json.Marshal(e)
	case data == nil:
		return nil, errors.New("data is missing: leave it in")
	}
	for _, of := range []event{was, e} {
		for name := range of {
			if !bytes.Equal(was[name], e[name]) {
				return nil, fmt.Errorf("the attribute %q is metadata of this message: change it there", name)
			}
		}
	}
	return data, nil
}

// read returns the attributes of an event, with its data if it is structured, or nil for another message.
func read(l letters.Letter) (e event, binary bool, err error) {
	e = event{}
	for key, value := range l.Original.Metadata {
		key = strings.ToLower(key)
		if key == "content-type" || key == "content_type" {
			if strings.HasPrefix(value, MediaType) {
				e = nil
				err = json.Unmarshal(l.Original.Payload, &e)
				return e, false, err
			}
			key = "ce_datacontenttype"
		}
		for _, prefix := range prefixes {
			if name, ok := strings.CutPrefix(key, prefix); ok && name != "data" {
				if e[name], err = json.Marshal(value); err != nil {
					return nil, false, err
				}
			}
		}
	}
	if e["specversion"] == nil {
		return nil, false, nil
	}
	return e, true, nil
}

// put sets the data: what is JSON, a text, or bytes.
func put(e event, data []byte) {
	switch {
	case !utf8.Valid(data):
		e["data_base64"], _ = json.Marshal(data)
	case json.Valid(data) && !isText(data):
		e["data"] = data
	default:
		e["data"], _ = json.Marshal(string(data))
	}
}

// take returns the data that put set, and takes them out. Without data they are nil.
func take(e event) (data []byte, err error) {
	text, coded := e["data"], e["data_base64"]
	delete(e, "data")
	delete(e, "data_base64")
	switch {
	case coded != nil && text != nil:
		err = errors.New("data and data_base64 are both there: leave one")
	case coded != nil:
		err = json.Unmarshal(coded, &data)
	case isText(text):
		var plain string
		err = json.Unmarshal(text, &plain)
		data = []byte(plain)
	case text != nil:
		var to bytes.Buffer
		err = json.Compact(&to, text)
		data = to.Bytes()
	}
	return data, err
}

// isText reports whether JSON is a text.
func isText(data []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(data), []byte(`"`)) }
