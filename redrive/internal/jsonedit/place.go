package jsonedit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

var (
	errAbsent = errors.New("there is no such value")
	errDeep   = fmt.Errorf("the patch is more than %d levels deep", MaxDepth)
	errTwice  = errors.New("an object has this key twice, so that it is not clear which is meant")
)

// parse reads a JSON pointer (RFC 6901).
func parse(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, nil
	}
	if pointer[0] != '/' {
		return nil, fmt.Errorf("the pointer %q must be empty or begin with a slash", cut(pointer))
	}
	tokens := strings.Split(pointer[1:], "/")
	if len(tokens) > MaxDepth {
		return nil, errDeep
	}
	for i, token := range tokens {
		for at := strings.IndexByte(token, '~'); at >= 0; {
			if at+1 >= len(token) || token[at+1] != '0' && token[at+1] != '1' {
				return nil, fmt.Errorf("the pointer %q has a ~ without 0 or 1 behind it", cut(pointer))
			}
			next := strings.IndexByte(token[at+2:], '~')
			if next < 0 {
				break
			}
			at += 2 + next
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

func cut(s string) string { return s[:min(len(s), 100)] }

// index reads an index of an array. The greatest is most.
func index(token string, most int) (int, error) {
	if token == "" || len(token) > 1 && token[0] == '0' || strings.Trim(token, "0123456789") != "" {
		return 0, fmt.Errorf("%q is no index of an array", cut(token))
	}
	n, err := strconv.Atoi(token)
	if err != nil || n > most {
		return 0, fmt.Errorf("the array has no index %q: %w", cut(token), errAbsent)
	}
	return n, nil
}

// member returns the member of an object with a key, or nil. A key that is there twice is an error.
func (n *node) member(key string) (*entry, error) {
	here := n.named[key]
	if here != nil && here.repeated {
		return nil, fmt.Errorf("%q: %w", cut(key), errTwice)
	}
	return here, nil
}

// child returns the entry of an object or array, which it opens, and its index in an array.
func (n *node) child(e *effort, token string) (here *entry, i int, err error) {
	if !n.isContainer() {
		return nil, 0, fmt.Errorf("%q: the value above it is neither an object nor an array: %w", cut(token), errAbsent)
	}
	if err := n.open(e); err != nil {
		return nil, 0, err
	}
	if n.isArray() {
		if i, err = index(token, len(n.entries)-1); err != nil {
			return nil, 0, err
		}
		return n.entries[i], i, nil
	}
	if here, err = n.member(token); err == nil && here == nil {
		err = fmt.Errorf("%q: %w", cut(token), errAbsent)
	}
	return here, 0, err
}

// find returns the value at a place.
func (n *node) find(e *effort, tokens []string) (*node, error) {
	for _, token := range tokens {
		here, _, err := n.child(e, token)
		if err != nil {
			return nil, err
		}
		n = here.value
	}
	return n, nil
}

// above returns the object or array that holds a place, and the last token of the place.
func (n *node) above(e *effort, tokens []string) (*node, string, error) {
	last := len(tokens) - 1
	holder, err := n.find(e, tokens[:last])
	return holder, tokens[last], err
}

// add puts a value where there may be none: an object gets a member, an array an element more. It returns the document.
func (n *node) add(e *effort, tokens []string, with *node) (*node, error) {
	if len(tokens) == 0 {
		return with, nil
	}
	holder, last, err := n.above(e, tokens)
	if err != nil {
		return nil, err
	}
	if !holder.isContainer() {
		return nil, fmt.Errorf("%q: the value above it is neither an object nor an array: %w", cut(last), errAbsent)
	}
	if err := holder.open(e); err != nil {
		return nil, err
	}
	if holder.isObject() {
		here, err := holder.member(last)
		switch {
		case err != nil:
			return nil, err
		case here != nil:
			here.value = with
		default:
			holder.put(last, with)
		}
		return n, nil
	}
	i := len(holder.entries)
	if last != "-" {
		if i, err = index(last, i); err != nil {
			return nil, err
		}
	}
	if i == len(holder.entries) {
		holder.put("", with)
		return n, nil
	}
	holder.entries = slices.Insert(holder.entries, i, &entry{value: with, behind: []byte{','}})
	return n, e.spend((len(holder.entries) - i) / perByte)
}

// perByte is how many elements of an array are moved in the time in which a byte is read.
const perByte = 8

// remove takes a value away, with its key and a comma.
func (n *node) remove(e *effort, tokens []string) error {
	if len(tokens) == 0 {
		return errors.New("the whole document cannot be removed")
	}
	holder, last, err := n.above(e, tokens)
	if err != nil {
		return err
	}
	here, i, err := holder.child(e, last)
	if err != nil {
		return err
	}
	if holder.isObject() {
		holder.drop(here)
		return nil
	}
	holder.entries = slices.Delete(holder.entries, i, i+1)
	return e.spend((len(holder.entries) - i) / perByte)
}

// replace puts a value in the place of another. It returns the document.
func (n *node) replace(e *effort, tokens []string, with *node) (*node, error) {
	if len(tokens) == 0 {
		return with, nil
	}
	holder, last, err := n.above(e, tokens)
	if err != nil {
		return nil, err
	}
	here, _, err := holder.child(e, last)
	if err != nil {
		return nil, err
	}
	here.value = with
	return n, nil
}
