package operate

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// EditFields say how messages change on their way, as a person writes it.
type EditFields struct {
	Patch      string   // a JSON merge patch {…}, or a JSON patch […]
	Set, Unset []string // metadata: key=value, key
	Func       string   // that the service's workers know
}

// ParseEdit reads an edit. Without a field there is none.
func ParseEdit(f EditFields) (*campaigns.Edit, error) {
	set, err := Pairs("set", f.Set)
	if err != nil {
		return nil, err
	}
	e := &campaigns.Edit{Func: f.Func, Unset: Filled(f.Unset), Set: set}
	if patch := bytes.TrimSpace([]byte(f.Patch)); len(patch) > 0 {
		switch {
		case !json.Valid(patch) || patch[0] != '{' && patch[0] != '[':
			return nil, wrong("edit", "is no patch: use a merge patch such as {\"currency\":\"EUR\"}, or a JSON patch such as "+
				"[{\"op\":\"remove\",\"path\":\"/card\"}]")
		case patch[0] == '[':
			e.Patch = patch
		default:
			e.Merge = patch
		}
	}
	if e.Func == "" && len(e.Unset)+len(e.Set)+len(e.Patch)+len(e.Merge) == 0 {
		return nil, nil
	}
	if err := e.Validate(); err != nil {
		field := "edit"
		switch about := err.Error(); {
		case strings.Contains(about, "metadata") && len(e.Set) > 0:
			field = "set"
		case strings.Contains(about, "metadata"):
			field = "unset"
		}
		return nil, wrong(field, "cannot be: %v", err)
	}
	return e, nil
}
