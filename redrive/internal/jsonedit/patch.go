package jsonedit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

const (
	// MaxOperations is the largest number of operations of a patch.
	MaxOperations = 1000
	// MaxKeys is the largest number of keys of a merge patch.
	MaxKeys = 1000
	// MaxDepth is the deepest place that a patch may name.
	MaxDepth = 100
	// headroom is how many bytes more than the document has may be copied in it: copies of copies would fill the
	// memory.
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
		return nil, fmt.Errorf("the patch has %d operations: it must be a list of 1 to %d", len(operations),
			MaxOperations)
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

// Apply returns the document with all operations done, or an error and none done. It ends with ctx.
func (p Patch) Apply(ctx context.Context, doc []byte) ([]byte, error) {
	return p.apply(&effort{ctx: ctx}, doc)
}

func (p Patch) apply(e *effort, doc []byte) ([]byte, error) {
	left := len(doc) + headroom
	return edited(e, doc, func(root *node) (_ *node, err error) {
		for i := range p {
			if err := e.ctx.Err(); err != nil {
				return nil, err
			}
			if root, err = p[i].apply(e, root, &left); err != nil {
				return nil, fmt.Errorf("operation %d, %s %q: %w", i, p[i].Op, cut(*p[i].Path), err)
			}
		}
		return root, nil
	})
}

// apply returns the document's value behind the operation. left is how many bytes may still be copied.
func (o *Operation) apply(e *effort, root *node, left *int) (*node, error) {
	switch o.Op {
	case "add":
		return root.add(e, o.path, parsed(o.Value))
	case "replace":
		return root.replace(e, o.path, parsed(o.Value))
	case "remove":
		return root, root.remove(e, o.path)
	case "test":
		value, err := root.find(e, o.path)
		if err != nil {
			return nil, err
		}
		if same, err := same(e, value, parsed(o.Value)); err != nil || same {
			return root, err
		}
		return nil, errors.New("the value is another")
	}
	value, err := root.find(e, o.from)
	switch {
	case err != nil:
		return nil, err
	case o.Op == "copy":
		text, err := value.write(e, nil)
		if err != nil {
			return nil, err
		}
		if *left -= len(text); *left < 0 {
			return nil, fmt.Errorf("the document grows by more than its size and %d bytes", headroom)
		}
		value = parsed(text)
	case slices.Equal(o.from, o.path):
		return root, nil
	default:
		if err := root.remove(e, o.from); err != nil {
			return nil, err
		}
	}
	return root.add(e, o.path, value)
}
