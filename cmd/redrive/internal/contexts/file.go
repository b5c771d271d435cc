// Package contexts keeps the contexts of the command redrive: names for the places where a person works. A context has
// addresses and paths of files, and no secret.
package contexts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Context says where the letters of a service are: an API with the file of a token, or a file as --config reads it.
type Context struct {
	URL       string `json:"url,omitempty"`
	TokenFile string `json:"token_file,omitempty"`
	CA        string `json:"ca,omitempty"`
	Config    string `json:"config,omitempty"`
}

// File is the file of a person's contexts. Only its owner may read it or write it.
type File struct {
	Current  string             `json:"current,omitempty"` // the context in use
	Contexts map[string]Context `json:"contexts"`

	path string
}

// most bounds what is read, in bytes.
const most = 1 << 20

var known = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Read reads the contexts of the person who runs the process. Without a file there is none.
func Read() (*File, error) {
	folder, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("contexts: %w: set HOME", err)
	}
	f := &File{Contexts: map[string]Context{}, path: filepath.Join(folder, "redrive", "contexts.json")}
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.Perm()&0o077 != 0 {
		return nil, fmt.Errorf("contexts: others may read or write %s (mode %#o), and send you elsewhere: chmod 600 %[1]s",
			f.path, mode.Perm())
	}
	if info.Size() > most {
		return nil, fmt.Errorf("contexts: %s has %d bytes, and may have %d: remove it, and add the contexts again",
			f.path,
			info.Size(), most)
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // what a newer command wrote would be lost when this one writes
	if err := decoder.Decode(f); err != nil {
		return nil, fmt.Errorf("contexts: %s: %w: a newer redrive may have written it; else correct it", f.path, err)
	}
	return f, nil
}

// Names are the names of the contexts, in their order.
func (f *File) Names() []string { return slices.Sorted(maps.Keys(f.Contexts)) }

// Get returns a context, or an error that says which there are.
func (f *File) Get(name string) (Context, error) {
	c, is := f.Contexts[name]
	switch {
	case is:
		return c, nil
	case len(f.Contexts) == 0:
		return c, fmt.Errorf("the context is %q, and there is none: redrive context add makes one", name)
	}
	return c, fmt.Errorf("the context is %q: use one of %s", name, strings.Join(f.Names(), ", "))
}

// CheckName returns an error for a name that no context can have.
func CheckName(name string) error {
	if known.MatchString(name) {
		return nil
	}
	return fmt.Errorf("NAME is %q: use 1 to 64 letters, digits, dots, hyphens and underscores", name)
}

// Write writes the file, as a whole or not at all.
func (f *File) Write() error {
	folder := filepath.Dir(f.path)
	err := os.MkdirAll(folder, 0o700)
	var text []byte
	if err == nil {
		text, err = json.MarshalIndent(f, "", "  ")
	}
	var next *os.File // with mode 0600
	if err == nil {
		next, err = os.CreateTemp(folder, "contexts-*")
	}
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	_, err = next.Write(append(text, '\n'))
	err = errors.Join(err, next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), f.path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}
