package jsonedit

import (
	"context"
	"fmt"
)

// Merge is a JSON merge patch that was read.
type Merge struct {
	value   []byte // nil for an object
	null    bool
	members []named
}

type named struct {
	key string
	to  *Merge
}

// ParseMerge reads a merge patch. It ends with ctx.
func ParseMerge(ctx context.Context, patch []byte) (*Merge, error) {
	if err := valid(patch); err != nil {
		return nil, fmt.Errorf("read the merge patch: %w", err)
	}
	keys := 0
	m, err := read(&effort{ctx: ctx}, parsed(patch), 0, &keys)
	if err != nil {
		return nil, fmt.Errorf("read the merge patch: %w", err)
	}
	return m, nil
}

func read(e *effort, n *node, depth int, keys *int) (*Merge, error) {
	if !n.isObject() {
		return &Merge{value: n.bytes(), null: string(n.bytes()) == "null"}, nil
	}
	if depth > MaxDepth {
		return nil, errDeep
	}
	if err := n.open(e); err != nil {
		return nil, err
	}
	m := new(Merge)
	for _, here := range n.entries {
		if *keys++; *keys > MaxKeys {
			return nil, fmt.Errorf("it has more than %d keys: split it, or use a function", MaxKeys)
		}
		if here.repeated {
			return nil, fmt.Errorf("%q: %w", cut(here.key), errTwice)
		}
		to, err := read(e, here.value, depth+1, keys)
		if err != nil {
			return nil, err
		}
		m.members = append(m.members, named{here.key, to})
	}
	return m, nil
}

// Apply returns the document with the patch applied. It ends with ctx.
func (m *Merge) Apply(ctx context.Context, doc []byte) ([]byte, error) {
	return m.apply(&effort{ctx: ctx}, doc)
}

func (m *Merge) apply(e *effort, doc []byte) ([]byte, error) {
	return edited(e, doc, func(root *node) (*node, error) { return m.into(e, root) })
}

// into returns what becomes of a value.
func (m *Merge) into(e *effort, n *node) (*node, error) {
	if err := e.ctx.Err(); err != nil {
		return nil, err
	}
	if m.value != nil {
		return parsed(m.value), nil
	}
	if n == nil || !n.isObject() {
		n = parsed([]byte("{}"))
	}
	if err := n.open(e); err != nil {
		return nil, err
	}
	for _, member := range m.members {
		here, err := n.member(member.key)
		if err != nil {
			return nil, err
		}
		if member.to.null {
			if here != nil {
				n.drop(here)
			}
			continue
		}
		var was *node
		if here != nil {
			was = here.value
		}
		is, err := member.to.into(e, was)
		if err != nil {
			return nil, err
		}
		if here == nil {
			n.put(member.key, is)
		} else {
			here.value = is
		}
	}
	return n, nil
}

// edited returns a document whose value change has changed. The white space around the value stays.
func edited(e *effort, doc []byte, change func(root *node) (*node, error)) ([]byte, error) {
	if err := e.ctx.Err(); err != nil {
		return nil, err
	}
	if err := valid(doc); err != nil {
		return nil, err
	}
	if err := e.spend(len(doc)); err != nil {
		return nil, err
	}
	root := parsed(doc)
	from, to := root.from, root.to
	root, err := change(root)
	if err != nil {
		return nil, err
	}
	out, err := root.write(e, append(make([]byte, 0, len(doc)), doc[:from]...))
	return append(out, doc[to:]...), err
}
