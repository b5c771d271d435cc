package console

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/console/internal/editable"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	maxEditKeys = 60 // of metadata that the form shows: campaigns.Edit changes 100
	newKeys     = 3  // empty rows
)

// keyField is a key of metadata in the form.
type keyField struct {
	Index      int
	Key, Value string
	Known      bool // the letter has the key
	Remove     bool
}

// keyFields are the names of the fields of all rows of keys.
func keyFields() (names []string) {
	for i := range maxEditKeys + newKeys {
		for _, name := range []string{"key-", "known-", "value-", "remove-"} {
			names = append(names, name+strconv.Itoa(i))
		}
	}
	return names
}

// whatChanged says who did what to a letter since the form was made.
func (c *console) whatChanged(l letters.Letter) string {
	if l.MarkedAt.IsZero() {
		return "The letter has changed since you opened it. It arrived again. What you typed is below."
	}
	status := operate.StatusWords(l.Status)
	by, _ := c.shown(l.Marked.By, maxShown)
	why, _ := c.shown(l.Marked.Reason, maxShown)
	return say("The letter has changed since you opened it: it is %s, by %s, for this reason: %s. What you typed is "+
		"below.", status, by, why)
}

// editOf is the edit that makes the letter what was typed. What was not changed is not part of it.
func editOf(l letters.Letter, form url.Values) (*campaigns.Edit, string) {
	e := &campaigns.Edit{Set: map[string]string{}}
	payload := []byte(l.Original.Payload)
	if editable.Check(payload) == nil && form.Has("payload") {
		typed, err := editable.Back(payload, form.Get("payload"))
		if err != nil {
			return nil, say("The payload cannot be what you typed: %s.", err.Error())
		}
		if typed != string(payload) {
			e.Payload = &typed
		}
	}
	for i := range maxEditKeys + newKeys {
		n := strconv.Itoa(i)
		key, value := strings.TrimSpace(form.Get("key-"+n)), form.Get("value-"+n)
		was, had := l.Original.Metadata[key]
		switch {
		case key == "" && value != "":
			return nil, "A value has no key."
		case key == "":
		case form.Get("remove-"+n) != "":
			if had {
				e.Unset = append(e.Unset, key)
			}
		case !had || was != value:
			e.Set[key] = value
		}
	}
	if e.Payload == nil && len(e.Set)+len(e.Unset) == 0 {
		return nil, "Nothing is changed yet. To redrive the letter as it is, use Redrive."
	}
	if err := e.Validate(); err != nil {
		return nil, say(badEdit, err.Error())
	}
	return e, ""
}

// unmasked is the form of a letter whose content the person may see.
func unmasked(l letters.Letter) url.Values {
	var view editView
	editKeys(l, nil, &view)
	form := url.Values{"payload": {string(l.Original.Payload)}}
	for _, k := range view.Keys {
		form.Set("value-"+strconv.Itoa(k.Index), k.Value)
	}
	return form
}

// editKeys are the rows of the producer's metadata. It reports whether the form has all of them.
func editKeys(l letters.Letter, form url.Values, view *editView) (seen bool) {
	own := poison.Inside().ProducerMetadata(l.Original.Metadata)
	keys := slices.Sorted(maps.Keys(own))
	for _, key := range keys {
		value := own[key]
		switch {
		case len(view.Keys) == maxEditKeys:
			view.Hidden++
		case editable.Check([]byte(key+value)) != nil || strings.ContainsAny(key+value, "\r\n") ||
			strings.TrimSpace(key) != key || key == "":
			view.Kept = append(view.Kept, key)
		default:
			view.Keys = append(view.Keys, keyField{Index: len(view.Keys), Key: key, Value: value, Known: true})
		}
	}
	for range newKeys {
		view.Keys = append(view.Keys, keyField{Index: len(view.Keys)})
	}
	seen = true
	for i := range view.Keys {
		k := &view.Keys[i]
		if n := strconv.Itoa(i); !form.Has("value-" + n) {
			seen = seen && !k.Known
		} else {
			k.Value, k.Remove = form.Get("value-"+n), form.Get("remove-"+n) != ""
			if !k.Known {
				k.Key = form.Get("key-" + n)
			}
		}
	}
	return seen
}

// hides reports whether the letter has something that the form would show and the console masks.
func (c *console) hides(l letters.Letter) bool {
	for key, value := range poison.Inside().ProducerMetadata(l.Original.Metadata) {
		if c.desk.Masks.Metadata(key, value) != value {
			return true
		}
	}
	return editable.Check(l.Original.Payload) == nil && c.desk.Hides(l.Original.Payload)
}
