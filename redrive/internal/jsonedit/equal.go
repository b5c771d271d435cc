package jsonedit

import (
	"encoding/json"
	"math/big"
	"strings"
)

// equal reports whether two values mean the same: members in any order, texts without regard to escapes, numbers by their value.
func equal(a, b []byte) bool { return same(a, root(a), b, root(b)) }

func same(a []byte, as span, b []byte, bs span) bool {
	switch {
	case isObject(a, as) && isObject(b, bs):
		am, bm := members(a, as), members(b, bs)
		if len(am) != len(bm) {
			return false
		}
		others := make(map[string]span, len(bm))
		for _, m := range bm {
			others[m.key] = m.value
		}
		for _, m := range am {
			other, is := others[m.key]
			if !is || !same(a, m.value, b, other) {
				return false
			}
			delete(others, m.key)
		}
		return true
	case isArray(a, as) && isArray(b, bs):
		am, bm := members(a, as), members(b, bs)
		if len(am) != len(bm) {
			return false
		}
		for i := range am {
			if !same(a, am[i].value, b, bm[i].value) {
				return false
			}
		}
		return true
	case a[as.from] == '"' && b[bs.from] == '"':
		var at, bt string
		_ = json.Unmarshal(a[as.from:as.to], &at)
		_ = json.Unmarshal(b[bs.from:bs.to], &bt)
		return at == bt
	}
	at, bt := string(a[as.from:as.to]), string(b[bs.from:bs.to])
	return at == bt || isNumber(at) && isNumber(bt) && plain(at) == plain(bt)
}

func isNumber(s string) bool { return s[0] == '-' || s[0] >= '0' && s[0] <= '9' }

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
