package privacy

import (
	"strings"
	"unicode/utf8"
)

// findCards finds card numbers: digits with the length and the beginning of an issuer's numbers and a right check
// digit, alone or in groups of four and more.
func findCards(text string, found *spans) {
	for i := 0; i < len(text); i++ {
		if !isDigit(text[i]) {
			continue
		}
		next := i // where a number can begin again: behind the first group
		for next < len(text) && isDigit(text[next]) {
			next++
		}
		if i == 0 || !isWord(text[i-1]) && !(i > 1 && text[i-1] == '.' && isDigit(text[i-2])) {
			if end := cardEnd(text, i); end > i {
				found.add(i, end)
				next = end
			}
		}
		i = next
	}
}

// cardEnd returns where the card number ends that begins at i, or 0.
func cardEnd(text string, i int) (end int) {
	var digits [19]byte
	n, separator := 0, ""
	for i < len(text) {
		group := 0
		for ; i < len(text) && isDigit(text[i]); i++ {
			if n == len(digits) {
				return end
			}
			digits[n] = text[i] - '0'
			n++
			group++
		}
		fraction := separator == "" && i+1 < len(text) && text[i] == '.' && isDigit(text[i+1]) && n > 4
		if (i == len(text) || !isWord(text[i])) && !fraction && isCard(digits[:n]) {
			end = i
		}
		if group < 4 {
			return end
		}
		next := separatorAt(text, i)
		i += len(next)
		if next == "" || i >= len(text) || !isDigit(text[i]) || separator != "" && separator != next {
			return end
		}
		separator = next
	}
	return end
}

// separators stand between the groups of a card number, besides the plain ones: the spaces and dashes of Unicode.
var separators = []string{
	"\u00a0", "\u202f", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007",
	"\u2008", "\u2009", "\u200a", "\u205f", "\u3000", "\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2212",
}

// separatorAt returns the separator that stands at i, or nothing.
func separatorAt(text string, i int) string {
	if i < len(text) && text[i] < utf8.RuneSelf {
		if strings.IndexByte(" -.+", text[i]) >= 0 {
			return text[i : i+1]
		}
		return ""
	}
	for _, s := range separators {
		if strings.HasPrefix(text[i:], s) {
			return s
		}
	}
	return ""
}

// isCard reports whether digits can be the number of a card.
func isCard(digits []byte) bool {
	n := len(digits)
	if n < 13 {
		return false
	}
	four := int(digits[0])*1000 + int(digits[1])*100 + int(digits[2])*10 + int(digits[3])
	two := four / 100
	issued := false
	switch {
	case two/10 == 4:
		issued = n == 13 || n == 16 || n == 19
	case two >= 51 && two <= 55, four >= 2221 && four <= 2720:
		issued = n == 16
	case two == 34 || two == 37:
		issued = n == 15
	case two == 30 || two == 36 || two == 38:
		issued = n == 14
	case four >= 3528 && four <= 3589:
		issued = n == 16
	case two == 60 || two == 62 || two == 64 || two == 65:
		issued = n >= 16
	}
	return issued && luhn(digits)
}

func luhn(digits []byte) bool {
	sum := 0
	for i, d := range digits {
		if (len(digits)-i)%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += int(d)
	}
	return sum%10 == 0
}
