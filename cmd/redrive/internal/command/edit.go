package command

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// editFlags say how messages change on their way.
type editFlags struct {
	edit, function string
	set, unset     []string
}

func (e *editFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&e.edit, "edit", "", "JSON merge patch {…} or JSON patch […], or @FILE with one")
	f.StringArrayVar(&e.set, "set", nil, "metadata key=value to set")
	f.StringArrayVar(&e.unset, "unset", nil, "metadata key to remove")
	f.StringVar(&e.function, "edit-func", "", "function that the service's workers know")
}

// read returns the edit, or nil if there is none.
func (e *editFlags) read() (*campaigns.Edit, error) {
	if e.edit == "" && e.function == "" && len(e.set)+len(e.unset) == 0 {
		return nil, nil
	}
	edit := &campaigns.Edit{Func: e.function, Unset: e.unset}
	for _, pair := range e.set {
		key, value, found := strings.Cut(pair, "=")
		if !found || key == "" {
			return nil, wrong("--set is %q: want key=value", pair)
		}
		if edit.Set == nil {
			edit.Set = map[string]string{}
		}
		edit.Set[key] = value
	}
	if e.edit != "" {
		patch := []byte(e.edit)
		if path, ok := strings.CutPrefix(e.edit, "@"); ok {
			var err error
			if patch, err = os.ReadFile(path); err != nil {
				return nil, wrong("--edit: %w", err)
			}
		}
		patch = bytes.TrimSpace(patch)
		if !json.Valid(patch) || patch[0] != '{' && patch[0] != '[' {
			return nil, wrong("--edit is no patch: give a merge patch such as {\"currency\":\"EUR\"}, a JSON patch such as " +
				"[{\"op\":\"remove\",\"path\":\"/card\"}], or @FILE")
		}
		if patch[0] == '[' {
			edit.Patch = patch
		} else {
			edit.Merge = patch
		}
	}
	if err := edit.Validate(); err != nil {
		return nil, wrong("--edit: %w", err)
	}
	return edit, nil
}
