// Package jsonedit changes JSON documents by a merge patch (RFC 7396) or a JSON patch (RFC 6902), with
// github.com/evanphx/json-patch. What a patch does not touch keeps its value, and no number becomes a float. White space
// goes, and a merge writes <, > and & as escapes. What the library would read at will, such as a key that is there
// twice, is refused before.
package jsonedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

const (
	// MaxOperations is the largest number of operations of a patch.
	MaxOperations = 1000
	// MaxKeys is the largest number of keys of a merge patch.
	MaxKeys = 1000
	// MaxDepth is the deepest value of a patch, and of a document that is patched.
	MaxDepth = 1000
	// headroom is how many bytes more than a document has may be copied in it: copies of copies would fill the memory.
	headroom = 1 << 20
)

// CheckPatch returns an error that says why a JSON patch can be applied to no document.
func CheckPatch(patch []byte) error {
	_, err := readPatch(patch)
	return err
}

// Patch returns the document with all operations of a JSON patch done, or an error and none done. Numbers are equal for
// the operation test if they are written alike.
func Patch(doc, patch []byte) ([]byte, error) {
	operations, err := readPatch(patch)
	if err != nil {
		return nil, err
	}
	if _, err := check(doc); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	if !isObject(doc) && !bytes.HasPrefix(bytes.TrimLeft(doc, space), []byte("[")) {
		return nil, errors.New("the document is neither an object nor a list: give the whole payload")
	}
	options := &jsonpatch.ApplyOptions{AccumulatedCopySizeLimit: int64(len(doc)) + headroom}
	out, err := operations.ApplyWithOptions(doc, options)
	if err != nil {
		return nil, errors.New(boundedtext.Error(err, 500))
	}
	return out, nil
}

func readPatch(patch []byte) (jsonpatch.Patch, error) {
	if _, err := check(patch); err != nil {
		return nil, fmt.Errorf("read the patch: %w", err)
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("read the patch: %s", boundedtext.Error(err, 500))
	}
	if len(operations) == 0 || len(operations) > MaxOperations {
		return nil, fmt.Errorf("the patch has %d operations: it must be a list of 1 to %d", len(operations), MaxOperations)
	}
	for i, o := range operations {
		if err := checkOperation(o); err != nil {
			return nil, fmt.Errorf("operation %d of the patch: %w", i, err)
		}
	}
	return operations, nil
}

var escapes = strings.NewReplacer("~0", "", "~1", "")

func checkOperation(o jsonpatch.Operation) error {
	path, err := o.Path()
	if err != nil {
		return errors.New(`it has no "path"`)
	}
	if path != "" && path[0] != '/' || strings.Contains(escapes.Replace(path), "~") {
		return fmt.Errorf("the path %q must be empty or begin with a slash, and have ~ only as ~0 and ~1", boundedtext.Text(path, 100))
	}
	switch kind := o.Kind(); kind {
	case "add", "replace", "test":
		if o["value"] == nil {
			return fmt.Errorf(`%q has no "value"`, kind)
		}
	case "move", "copy":
		from, err := o.From()
		if err != nil {
			return fmt.Errorf(`%q has no "from"`, kind)
		}
		if kind == "move" && len(path) > len(from) && path[:len(from)] == from && path[len(from)] == '/' {
			return errors.New("a value cannot be moved into itself")
		}
	case "remove":
		if path == "" {
			return errors.New("the whole document cannot be removed")
		}
	default:
		return fmt.Errorf("%q is no operation: use add, remove, replace, move, copy or test", boundedtext.Text(kind, 100))
	}
	return nil
}

// CheckMerge returns an error that says why a merge patch can be applied to no document.
func CheckMerge(patch []byte) error {
	keys, err := check(patch)
	if err != nil {
		return fmt.Errorf("read the merge patch: %w", err)
	}
	if keys > MaxKeys {
		return fmt.Errorf("read the merge patch: it has more than %d keys: split it, or use a function", MaxKeys)
	}
	return nil
}

// Merge returns the document with a merge patch applied.
func Merge(doc, patch []byte) ([]byte, error) {
	if err := CheckMerge(patch); err != nil {
		return nil, err
	}
	if _, err := check(doc); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	if !isObject(patch) {
		return patch, nil
	}
	if !isObject(doc) {
		doc = []byte("{}")
	}
	out, err := jsonpatch.MergePatch(doc, patch)
	if err != nil {
		return nil, errors.New(boundedtext.Error(err, 500))
	}
	return out, nil
}

const space = " \t\r\n"

func isObject(text []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(text, space), []byte("{")) }

// check returns how many keys the objects of a JSON text have, and an error if the library could read it at will: bytes
// that are not UTF-8, a key that is there twice, more levels than MaxDepth.
func check(text []byte) (keys int, err error) {
	if !utf8.Valid(text) {
		return 0, errors.New("it is not UTF-8: use a function")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var open []map[string]bool // the keys of each level; nil for a list
	key := false               // whether the next token of an object is a key
	for first := true; ; first = false {
		token, err := d.Token()
		if err == io.EOF && !first && len(open) == 0 {
			return keys, nil
		}
		if err != nil {
			return 0, fmt.Errorf("it is not JSON: %w", err)
		}
		if !first && len(open) == 0 {
			return 0, errors.New("it is not JSON: there is text behind the value")
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			var level map[string]bool
			if token == json.Delim('{') {
				level = map[string]bool{}
			}
			if open = append(open, level); len(open) > MaxDepth {
				return 0, fmt.Errorf("it has more than %d levels: use a function", MaxDepth)
			}
			key = level != nil
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		default:
			if name, is := token.(string); is && key {
				level := open[len(open)-1]
				if level[name] {
					return 0, fmt.Errorf("it has the key %q twice: use a function", boundedtext.Text(name, 100))
				}
				level[name] = true
				keys++
				key = false
				continue
			}
		}
		key = len(open) > 0 && open[len(open)-1] != nil
	}
}
