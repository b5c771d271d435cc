package jsonedit

import (
	"bytes"
	"errors"
	"math/big"
	"strings"
)

// maxNumber is how long a number may be that is compared by its value. A longer one is equal to what is written like
// it.
const maxNumber = 1000

// same reports whether two values mean the same: members in any order, texts without regard to escapes, numbers by
// their value. It reads of a no more than b makes necessary: a comes with a message, and may be large.
func same(e *effort, a, b *node) (bool, error) {
	switch {
	case a.isObject() && b.isObject() || a.isArray() && b.isArray():
		if err := errors.Join(a.open(e), b.open(e)); err != nil {
			return false, err
		}
		if a.isArray() {
			return sameElements(e, a.entries, b.entries)
		}
		return sameMembers(e, a, b)
	case a.isContainer() || b.isContainer():
		return false, nil
	}
	at, bt := a.bytes(), b.bytes()
	if err := e.spend(min(len(at), 6*len(bt)) + len(bt)); err != nil || bytes.Equal(at, bt) {
		return err == nil, err
	}
	if at[0] == '"' && bt[0] == '"' {
		const escape = len(`\u0000`)
		return len(at) <= escape*len(bt) && unquoted(at) == unquoted(bt), nil
	}
	numbers := isNumber(at) && isNumber(bt) && max(len(at), len(bt)) <= maxNumber
	return numbers && plain(string(at)) == plain(string(bt)), nil
}

func sameElements(e *effort, a, b []*entry) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range b {
		if is, err := same(e, a[i].value, b[i].value); !is {
			return false, err
		}
	}
	return true, nil
}

// sameMembers reports that objects differ in which a key is there twice.
func sameMembers(e *effort, a, b *node) (bool, error) {
	if a.repeated || b.repeated || len(a.named) != len(b.named) {
		return false, nil
	}
	for key, here := range b.named {
		other := a.named[key]
		if other == nil {
			return false, nil
		}
		if is, err := same(e, other.value, here.value); !is {
			return false, err
		}
	}
	return true, nil
}

func isNumber(s []byte) bool { return s[0] == '-' || s[0] >= '0' && s[0] <= '9' }

// plain is the one form of a number that all its spellings have: digits without zeros at their ends, and an exponent.
func plain(number string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	sign := ""
	if mantissa[0] == '-' {
		sign, mantissa = "-", mantissa[1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	short := strings.TrimRight(digits, "0")
	e, ok := new(big.Int).SetString(strings.TrimPrefix(exponent, "+"), 10)
	if !ok {
		e = new(big.Int)
	}
	e.Add(e, big.NewInt(int64(len(digits)-len(short)-len(fraction))))
	return sign + short + "e" + e.String()
}
