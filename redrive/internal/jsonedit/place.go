package jsonedit

import (
	"errors"
	"fmt"
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

// find returns where the value at a place stands.
func find(doc []byte, tokens []string) (span, error) {
	at := root(doc)
	for _, token := range tokens {
		m, err := child(doc, at, token)
		if err != nil {
			return span{}, err
		}
		at = m.value
	}
	return at, nil
}

// child returns a member of an object or an element of an array.
func child(doc []byte, at span, token string) (member, error) {
	switch {
	case isObject(doc, at):
		found := named(doc, at, token)
		switch len(found) {
		case 0:
			return member{}, fmt.Errorf("%q: %w", cut(token), errAbsent)
		case 1:
			return found[0], nil
		}
		return member{}, fmt.Errorf("%q: %w", cut(token), errTwice)
	case isArray(doc, at):
		all := members(doc, at)
		i, err := index(token, len(all)-1)
		if err != nil {
			return member{}, err
		}
		return all[i], nil
	}
	return member{}, fmt.Errorf("%q: the value above it is neither an object nor an array: %w", cut(token), errAbsent)
}

// replace puts a value in the place of another.
func replace(doc []byte, tokens []string, with []byte) ([]byte, error) {
	at, err := find(doc, tokens)
	if err != nil {
		return nil, err
	}
	return splice(doc, at, with), nil
}

// add puts a value where there may be none: an object gets a member, an array an element more.
func add(doc []byte, tokens []string, with []byte) ([]byte, error) {
	if len(tokens) == 0 {
		return splice(doc, root(doc), with), nil
	}
	above, last := tokens[:len(tokens)-1], tokens[len(tokens)-1]
	at, err := find(doc, above)
	if err != nil {
		return nil, err
	}
	all := members(doc, at)
	switch {
	case isObject(doc, at):
		switch found := named(doc, at, last); len(found) {
		case 0:
			with = append(append(quote(last), ':'), with...)
		case 1:
			return splice(doc, found[0].value, with), nil
		default:
			return nil, fmt.Errorf("%q: %w", cut(last), errTwice)
		}
	case isArray(doc, at):
		if last != "-" {
			i, err := index(last, len(all))
			if err != nil {
				return nil, err
			}
			if i < len(all) {
				from := all[i].whole.from
				return splice(doc, span{from, from}, append(append([]byte(nil), with...), ',')), nil
			}
		}
	default:
		return nil, fmt.Errorf("%q: the value above it is neither an object nor an array: %w", cut(last), errAbsent)
	}
	if len(all) == 0 {
		return splice(doc, span{at.from + 1, at.from + 1}, with), nil
	}
	end := all[len(all)-1].whole.to
	return splice(doc, span{end, end}, append([]byte{','}, with...)), nil
}

// remove takes a value away, with its key and a comma.
func remove(doc []byte, tokens []string) ([]byte, error) {
	if len(tokens) == 0 {
		return nil, errors.New("the whole document cannot be removed")
	}
	at, err := find(doc, tokens[:len(tokens)-1])
	if err != nil {
		return nil, err
	}
	m, err := child(doc, at, tokens[len(tokens)-1])
	if err != nil {
		return nil, err
	}
	all := members(doc, at)
	for i := range all {
		if all[i].whole != m.whole {
			continue
		}
		switch {
		case i+1 < len(all):
			return splice(doc, span{m.whole.from, all[i+1].whole.from}, nil), nil
		case i > 0:
			return splice(doc, span{all[i-1].whole.to, m.whole.to}, nil), nil
		}
	}
	return splice(doc, m.whole, nil), nil
}
