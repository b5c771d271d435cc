package series

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Other is the value of all that are too many.
const Other = "other"

// Few keeps the values of a label few and short: a value may come from an attacker, and each new one is a series. It
// knows the values that each label has, and folds those that are too many into Other. It is safe for concurrent use.
type Few struct {
	most, longest int
	folded        func(label string)

	mu   sync.RWMutex
	seen map[string]map[string]bool // by label
}

// NewFew returns a Few whose labels have at most so many for each label, of at most longest characters. It calls folded, if that
// is not nil, for each value that becomes Other.
func NewFew(most, longest int, folded func(label string)) *Few {
	return &Few{most: most, longest: longest, folded: folded, seen: map[string]map[string]bool{}}
}

// Of returns value as it may stand under label: as Text, or Other. It allocates only for a value that is new.
func (v *Few) Of(label, value string) string {
	value = Text(value, v.longest)
	v.mu.RLock()
	known := v.seen[label][value]
	v.mu.RUnlock()
	if known || v.enter(label, value) {
		return value
	}
	if v.folded != nil {
		v.folded(label)
	}
	return Other
}

func (v *Few) enter(label, value string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	values := v.seen[label]
	switch {
	case values[value]:
	case len(values) >= v.most:
		return false
	case values == nil:
		v.seen[label] = map[string]bool{strings.Clone(value): true}
	default:
		values[strings.Clone(value)] = true
	}
	return true
}

// Text returns value as UTF-8 without control characters and without marks of direction, which turn what stands around
// the value, and at most so many characters of it. It allocates only if it changes value.
func Text(value string, most int) string {
	for i := range len(value) {
		if c := value[i]; i >= most || c < ' ' || c >= utf8.RuneSelf || c == 0x7f {
			return rewritten(value, most)
		}
	}
	return value
}

func rewritten(value string, most int) string {
	n := 0
	var b strings.Builder
	for _, r := range value {
		if n++; n > most {
			break
		}
		if unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	return b.String()
}
