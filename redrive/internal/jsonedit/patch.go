package jsonedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

const (
	// MaxOperations is the largest number of operations of a patch.
	MaxOperations = 1000
	// MaxDepth is the deepest place that a patch may name: each level is looked for from the top.
	MaxDepth = 100
	// headroom is by how much a document may grow beyond twice its size: copies of copies would fill the memory.
	headroom = 1 << 20
)

// Operation is one operation of a JSON patch.
type Operation struct {
	Op    string          `json:"op"`
	Path  *string         `json:"path"`
	From  *string         `json:"from"`
	Value json.RawMessage `json:"value"`

	path, from []string
}

// Patch is a JSON patch that was read.
type Patch []Operation

// Parse reads a JSON patch.
func Parse(patch []byte) (Patch, error) {
	if err := valid(patch); err != nil {
		return nil, fmt.Errorf("read the patch: %w", err)
	}
	var operations Patch
	if err := json.Unmarshal(patch, &operations); err != nil {
		return nil, fmt.Errorf("read the patch: %w", err)
	}
	if len(operations) == 0 || len(operations) > MaxOperations {
		return nil, fmt.Errorf("the patch has %d operations: it must be a list of 1 to %d", len(operations), MaxOperations)
	}
	for i := range operations {
		if err := operations[i].prepare(); err != nil {
			return nil, fmt.Errorf("operation %d of the patch: %w", i, err)
		}
	}
	return operations, nil
}

func (o *Operation) prepare() (err error) {
	if o.Path == nil {
		return errors.New(`it has no "path"`)
	}
	if o.path, err = parse(*o.Path); err != nil {
		return err
	}
	switch o.Op {
	case "add", "replace", "test":
		if len(o.Value) == 0 {
			return fmt.Errorf(`%q has no "value"`, o.Op)
		}
	case "move", "copy":
		if o.From == nil {
			return fmt.Errorf(`%q has no "from"`, o.Op)
		}
		if o.from, err = parse(*o.From); err != nil {
			return err
		}
		if o.Op == "move" && len(o.from) < len(o.path) && slices.Equal(o.from, o.path[:len(o.from)]) {
			return errors.New("a value cannot be moved into itself")
		}
	case "remove":
		if len(o.path) == 0 {
			return errors.New("the whole document cannot be removed")
		}
	default:
		return fmt.Errorf("%q is no operation: use add, remove, replace, move, copy or test", cut(o.Op))
	}
	return nil
}

// Apply returns the document with all operations done, or an error and none done.
func (p Patch) Apply(doc []byte) ([]byte, error) {
	if err := valid(doc); err != nil {
		return nil, err
	}
	most := 2*len(doc) + headroom
	for i := range p {
		var err error
		if doc, err = p[i].apply(doc); err != nil {
			return nil, fmt.Errorf("operation %d, %s %q: %w", i, p[i].Op, cut(*p[i].Path), err)
		}
		if len(doc) > most {
			return nil, fmt.Errorf("operation %d, %s %q: the document grows to %d bytes, more than %d", i, p[i].Op, cut(*p[i].Path), len(doc), most)
		}
	}
	return doc, nil
}

func (o *Operation) apply(doc []byte) ([]byte, error) {
	switch o.Op {
	case "add":
		return add(doc, o.path, o.Value)
	case "replace":
		return replace(doc, o.path, o.Value)
	case "remove":
		return remove(doc, o.path)
	}
	place := o.path
	if o.Op != "test" {
		place = o.from
	}
	at, err := find(doc, place)
	if err != nil {
		return nil, err
	}
	value := bytes.Clone(doc[at.from:at.to])
	switch o.Op {
	case "test":
		if !equal(value, o.Value) {
			return nil, errors.New("the value is another")
		}
		return doc, nil
	case "move":
		if slices.Equal(o.from, o.path) {
			return doc, nil
		}
		if doc, err = remove(doc, o.from); err != nil {
			return nil, err
		}
	}
	return add(doc, o.path, value)
}

// Merge returns the document with a merge patch applied.
func Merge(doc, patch []byte) ([]byte, error) {
	if err := valid(patch); err != nil {
		return nil, fmt.Errorf("read the merge patch: %w", err)
	}
	if err := valid(doc); err != nil {
		return nil, err
	}
	return merge(doc, nil, patch)
}

func merge(doc []byte, place []string, patch []byte) ([]byte, error) {
	at := root(patch)
	if !isObject(patch, at) {
		return add(doc, place, patch[at.from:at.to])
	}
	if len(place) > MaxDepth {
		return nil, errDeep
	}
	if found, err := find(doc, place); errors.Is(err, errTwice) {
		return nil, err
	} else if err != nil || !isObject(doc, found) {
		if doc, err = add(doc, place, []byte("{}")); err != nil {
			return nil, err
		}
	}
	for _, m := range members(patch, at) {
		here := append(slices.Clone(place), m.key)
		_, err := find(doc, here)
		with := patch[m.value.from:m.value.to]
		switch {
		case errors.Is(err, errTwice):
			return nil, err
		case string(with) == "null":
			if err == nil {
				doc, err = remove(doc, here)
			} else {
				err = nil
			}
		default:
			doc, err = merge(doc, here, with)
		}
		if err != nil {
			return nil, err
		}
	}
	return doc, nil
}
