package privacy

import (
	"errors"
	"strconv"
	"strings"
)

// path is a JSON path: what leads from a document to the values that it names.
type path []step

// step leads from a value to values in it.
type step struct {
	deep  bool   // at any depth below
	any   bool   // each name and index
	name  string // in lower case
	index int    // if name is empty and any is false
}

// maxSteps is the number of steps that a set of places has room for.
const maxSteps = 31

var errPath = errors.New("give a path such as $.card.number, $..password, $.users[*].name, $.rows[0] or $['last name']")

func parsePath(text string) (p path, err error) {
	rest, ok := strings.CutPrefix(text, "$")
	if !ok {
		return nil, errPath
	}
	for rest != "" {
		var s step
		s.deep = strings.HasPrefix(rest, "..")
		switch {
		case s.deep:
			rest = rest[2:]
		case rest[0] == '.':
			rest = rest[1:]
		case rest[0] != '[':
			return nil, errPath
		}
		if strings.HasPrefix(rest, "[") {
			rest, err = s.bracket(rest)
		} else {
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			s.name, rest = rest[:end], rest[end:]
			if s.name == "" || strings.ContainsAny(s.name, `]?@()'"`) {
				return nil, errPath
			}
			if s.name == "*" {
				s.any, s.name = true, ""
			}
		}
		if err != nil {
			return nil, err
		}
		s.name = strings.ToLower(s.name)
		p = append(p, s)
	}
	if len(p) > maxSteps {
		return nil, errors.New("the path has " + strconv.Itoa(len(p)) + " steps: give at most " +
			strconv.Itoa(maxSteps))
	}
	return p, nil
}

// bracket reads [*], [0] or ['name'], and returns what follows.
func (s *step) bracket(rest string) (string, error) {
	if len(rest) > 2 && isQuote(rest[1]) {
		end := strings.IndexByte(rest[2:], rest[1])
		if end < 1 || !strings.HasPrefix(rest[2+end+1:], "]") {
			return "", errPath
		}
		s.name = rest[2 : 2+end]
		return rest[2+end+2:], nil
	}
	end := strings.IndexByte(rest, ']')
	if end < 0 {
		return "", errPath
	}
	if rest[1:end] == "*" {
		s.any = true
		return rest[end+1:], nil
	}
	n, err := strconv.ParseUint(rest[1:end], 10, 31)
	if err != nil {
		return "", errPath
	}
	s.index = int(n)
	return rest[end+1:], nil
}

// places are the steps of a path that may be taken next, a bit each. The bit behind the last step says that the path
// has arrived.
type places uint32

func (p path) arrived(at places) bool { return at&(1<<len(p)) != 0 }

// next returns where a path is after the name, or the index if name is empty and the value is in an array.
func (p path) next(at places, name string, index int) (to places) {
	for i, s := range p {
		if at&(1<<i) == 0 {
			continue
		}
		if s.deep {
			to |= 1 << i
		}
		if s.any || index < 0 && s.name != "" && s.name == name || index >= 0 && s.name == "" && s.index == index {
			to |= 1 << (i + 1)
		}
	}
	return to
}
