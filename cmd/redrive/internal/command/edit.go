package command

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/watermill-spillway/spillway/internal/operate"
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
	patch := e.edit
	if path, ok := strings.CutPrefix(e.edit, "@"); ok {
		read, err := os.ReadFile(path)
		if err != nil {
			return nil, wrong("--edit: %w", err)
		}
		patch = string(read)
	}
	edit, err := operate.ParseEdit(operate.EditFields{Patch: patch, Set: e.set, Unset: e.unset, Func: e.function})
	return edit, flagged(err)
}
