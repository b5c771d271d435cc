package command

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// maskedCampaign returns a campaign as it may be shown: its filter and its edit have values of messages.
func (a *app) maskedCampaign(c campaigns.Campaign) campaigns.Campaign {
	f := &c.Request.Filter
	f.Metadata = a.maskedMetadata(f.Metadata)
	f.Description, f.Payload = a.privacy.Text(f.Description), a.privacy.Text(f.Payload)
	c.Request.Edit = a.maskedEdit(c.Request.Edit)
	return c
}

func (a *app) maskedMetadata(values map[string]string) map[string]string {
	if values == nil {
		return nil
	}
	masked := make(map[string]string, len(values))
	for key, value := range values {
		masked[key] = a.privacy.Metadata(key, value)
	}
	return masked
}

// maskedEdit returns an edit as it may be shown.
func (a *app) maskedEdit(e *campaigns.Edit) *campaigns.Edit {
	if e == nil {
		return nil
	}
	masked := *e
	masked.Set = a.maskedMetadata(e.Set)
	if e.Payload != nil {
		payload := string(a.privacy.Payload([]byte(*e.Payload)))
		masked.Payload = &payload
	}
	if len(e.Merge) > 0 {
		masked.Merge = a.privacy.Payload(e.Merge)
	}
	if len(e.Patch) > 0 {
		masked.Patch = a.maskedPatch(e.Patch)
	}
	return &masked
}

// maskedPatch masks the values of a JSON patch. A path of the rules cannot be followed in it, so with paths all values are masked.
func (a *app) maskedPatch(patch json.RawMessage) json.RawMessage {
	var operations []map[string]json.RawMessage
	if json.Unmarshal(patch, &operations) != nil {
		return a.privacy.Payload(patch)
	}
	for _, o := range operations {
		value, ok := o["value"]
		if !ok {
			continue
		}
		var pointer string
		_ = json.Unmarshal(o["path"], &pointer)
		name := pointer[strings.LastIndexByte(pointer, '/')+1:]
		wrapped, _ := json.Marshal(map[string]json.RawMessage{name: value})
		var shown map[string]json.RawMessage
		if a.paths || json.Unmarshal(a.privacy.Payload(wrapped), &shown) != nil || shown[name] == nil {
			shown = map[string]json.RawMessage{name: json.RawMessage(`"` + privacy.Mark + `"`)}
		}
		o["value"] = shown[name]
	}
	masked, err := json.Marshal(operations)
	if err != nil {
		return json.RawMessage(`"` + privacy.Mark + `"`)
	}
	return masked
}

// maskedDetail returns the detail of a record as it may be shown: that of an edited letter is the edit.
func (a *app) maskedDetail(detail string) string {
	var e campaigns.Edit
	if strings.HasPrefix(detail, "{") && json.Unmarshal([]byte(detail), &e) == nil && e.Validate() == nil {
		return a.maskedEdit(&e).String()
	}
	return detail // the screen masks texts
}

// maskedEvents returns entries of the record as they may be shown.
func (a *app) maskedEvents(events []letters.Event) []letters.Event {
	masked := slices.Clone(events)
	for i := range masked {
		masked[i].Detail = a.maskedDetail(masked[i].Detail)
	}
	return masked
}
