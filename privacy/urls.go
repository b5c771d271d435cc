package privacy

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// findURLs finds passwords in URLs, and in addresses that have none of a URL but user and password.
func findURLs(text string, found *spans) {
	if strings.IndexByte(text, '@') < 0 {
		return
	}
	for from := 0; ; {
		i := strings.Index(text[from:], "://")
		if i < 0 {
			break
		}
		i += from
		from = i + 3
		scheme := i
		for scheme > 0 && i-scheme < 32 && (isWord(text[scheme-1]) || strings.IndexByte("+.-", text[scheme-1]) >= 0) {
			scheme--
		}
		http := strings.HasPrefix(strings.ToLower(text[scheme:i]), "http")
		start, end := userInfo(text, from, http, isBlankInURL)
		// of a blank in a password, an error of Go has the whole URL in quotes
		if start == end && scheme > 0 && isQuote(text[scheme-1]) {
			start, end = userInfo(text, from, http, isBreak)
		}
		found.add(start, end)
		findRepeated(text, start, end, found)
	}
	for from := 0; ; {
		i := strings.IndexByte(text[from:], '@')
		if i < 0 {
			return
		}
		i += from
		from = i + 1
		found.add(address(text, i))
	}
}

// maxURL bounds how far behind its scheme the host of a URL is looked for.
const maxURL = 2 << 10

func isBlankInURL(c byte) bool { return isSpace(c) || isBreak(c) || c == '<' || c == '>' }

// userInfo returns the password of the URL whose authority begins at start. Of http, the user too: it can be a token.
// The URL ends at a quote, or where ends says.
func userInfo(text string, start int, http bool, ends func(byte) bool) (int, int) {
	end := start
	for end < len(text) && end-start < maxURL && text[end] != '"' && text[end] != '`' && !ends(text[end]) {
		end++
	}
	token := text[start:end]
	// several, with a comma between, or one in the query of the other
	if next := strings.Index(token, "://"); next >= 0 {
		for next > 0 && (isWord(token[next-1]) || strings.IndexByte("+.-", token[next-1]) >= 0) {
			next--
		}
		token = token[:max(0, next-1)]
	}
	at := strings.IndexByte(token, '@')
	path := strings.IndexAny(token, "/?#")
	if path >= 0 && at > path {
		// A password with a slash in it, or an @ in the path.
		colon := strings.IndexByte(token[:path], ':')
		if http && (colon < 0 || isDigits(token[colon+1:path])) {
			return 0, 0
		}
		at = strings.LastIndexByte(token, '@')
	} else if at >= 0 {
		if path < 0 {
			path = len(token)
		}
		at = strings.LastIndexByte(token[:path], '@')
	}
	if at < 0 {
		return 0, 0
	}
	if http {
		return start, start + at
	}
	colon := strings.IndexByte(token[:at], ':')
	if colon < 0 {
		return 0, 0
	}
	return start + colon + 1, start + at
}

// address returns the password of user:password@host:port, user:password@host/name, or
// user:password@tcp(host:port)/name, whose @ is at i.
func address(text string, i int) (int, int) {
	// of package mysql, or an address of IPv6
	if rest := text[i+1:]; strings.HasPrefix(rest, "/") ||
		len(rest) > 2 && rest[0] == '[' && (isHex(rest[1]) || rest[1] == ':') {
		return pairBefore(text, i)
	}
	end := i + 1
	for end < len(text) && end-i < 256 && (isWord(text[end]) || text[end] == '.' || text[end] == '-') {
		end++
	}
	switch {
	case end == len(text) || end == i+1 && text[end] != '(':
		return 0, 0
	case text[end] == ':':
		if end+1 == len(text) || !isDigit(text[end+1]) {
			return 0, 0
		}
	case text[end] != '(' && text[end] != '/':
		return 0, 0
	}
	return pairBefore(text, i)
}

// pairBefore returns the password of the user:password that ends at i.
func pairBefore(text string, i int) (int, int) {
	start := i
	for start > 0 && i-start < 128 && !isSpace(text[start-1]) && !isBreak(text[start-1]) && !isQuote(text[start-1]) &&
		text[start-1] != '=' {
		start--
	}
	colon := strings.IndexByte(text[start:i], ':')
	if colon < 1 || strings.HasPrefix(text[start+colon:], "://") || start+colon+1 == i {
		return 0, 0
	}
	for j := start; j < start+colon; j++ {
		if !isName(text[j]) && text[j] != '+' {
			return 0, 0
		}
	}
	return start + colon + 1, i
}

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
			digits[n] = text[i]
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

// separatorAt returns the separator between groups of a card number that stands at i, or nothing.
func separatorAt(text string, i int) string {
	r, size := utf8.DecodeRuneInString(text[i:])
	if strings.ContainsRune(".+\u2212", r) || unicode.In(r, unicode.Zs, unicode.Pd) {
		return text[i : i+size]
	}
	return ""
}

// issued is how the numbers of issuers of cards begin, and their lengths.
var issued = regexp.MustCompile(`^(4\d{12}(\d{3}){0,2}|5[1-5]\d{14}|2(22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|` +
	`3[47]\d{13}|3[068]\d{12}|35(2[89]|[3-8]\d)\d{12}|6[0245]\d{14,17})$`)

// isCard reports whether digits can be the number of a card.
func isCard(digits []byte) bool {
	return len(digits) >= 13 && luhn(digits) && issued.MatchString(string(digits))
}

func luhn(digits []byte) bool {
	sum := 0
	for i, d := range digits {
		d -= '0'
		if (len(digits)-i)%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += int(d)
	}
	return sum%10 == 0
}
