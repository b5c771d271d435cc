package privacy

import "strings"

// valueAt returns the value that begins at start. prose reports that the value may be the next words of a sentence, as
// in "parse token: unexpected end".
func valueAt(text string, start int, k kind, prose bool) (int, int) {
	rest := text[start:]
	switch {
	// an escaped quote: findIn looks at the text without escapes too
	case rest == "" || isBreak(rest[0]) || rest[0] == '\\':
		return 0, 0
	case k == several && rest[0] != '[' && rest[0] != '{':
		return 0, 0
	case strings.HasPrefix(rest, Mark):
		n := 0
		for strings.HasPrefix(rest[n:], Mark) {
			n += len(Mark)
		}
		return start, bareEnd(text, start+n)
	case isQuote(rest[0]):
		end := quotedEnd(text, start+1, rest[0])
		// cookies, the first one in quotes
		if k == line && end+1 < len(text) && text[end] == rest[0] && text[end+1] == ';' {
			return restOfLine(text, start)
		}
		return start + 1, end
	case rest[0] == '[' || rest[0] == '{':
		return start + 1, closedEnd(text, start+1)
	case k == line:
		return lineAt(text, start)
	}
	end := bareEnd(text, start)
	value := text[start:end]
	if isNothing(value) || prose && isProse(text, start, end, k) {
		return 0, 0
	}
	return start, end
}

// quotedEnd returns where the quoted value that begins at start ends: at the quote, or with its line.
func quotedEnd(text string, start int, quote byte) int {
	for i := start; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quote != '`':
			i++
		case c == quote || isBreak(c):
			return i
		}
	}
	return len(text)
}

// closedEnd returns where the list or object ends that was opened before start, at the latest with its line.
func closedEnd(text string, start int) int {
	depth := 1
	for i := start; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			if i = quotedEnd(text, i+1, c); i >= len(text) {
				return len(text)
			}
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth--; depth == 0 {
				return i
			}
		case isBreak(c):
			return i
		}
	}
	return len(text)
}

// bareEnd returns where a value without quotes ends. A separator ends the value only if what follows looks like
// something new.
func bareEnd(text string, from int) int {
	for i := from; i < len(text); i++ {
		switch c := text[i]; {
		case isSpace(c) || isBreak(c) || isQuote(c) || c == '<' || c == '>':
			return i
		case c == ',' || c == ';' || c == '&' || c == '|':
			if i+1 == len(text) || isSpace(text[i+1]) || isBreak(text[i+1]) || isQuote(text[i+1]) ||
				isPair(text[i+1:]) {
				return i
			}
		case c == ')' || c == ']' || c == '}':
			if i+1 == len(text) || isSpace(text[i+1]) || isBreak(text[i+1]) ||
				strings.IndexByte(`,;:.)]}"'`, text[i+1]) >= 0 {
				return i
			}
		case c == '\\' && i+1 < len(text) && strings.IndexByte(`nrt"'u`, text[i+1]) >= 0:
			return i
		}
	}
	return len(text)
}

// isPair reports whether text begins with a name and a separator.
func isPair(text string) bool {
	n := 0
	for n < len(text) && n < maxName && isName(text[n]) {
		n++
	}
	return n > 0 && n < len(text) && (text[n] == '=' || text[n] == ':')
}

// schemes are those of an Authorization header. Other words behind "authorization: " are a sentence.
var schemes = []string{"bearer", "basic", "digest", "negotiate", "ntlm", "token", "apikey", "oauth", "hawk",
	"aws4-hmac-sha256", "signature", "key"}

// lineAt returns the value of a header that begins at start, which is the rest of its line.
func lineAt(text string, start int) (int, int) {
	word := bareEnd(text, start)
	first := text[start:word]
	known := strings.ContainsAny(first, "=0123456789") || isCredential(text, word)
	for _, scheme := range schemes {
		known = known || strings.EqualFold(first, scheme)
	}
	if isNothing(first) || !known && isProse(text, start, word, secret) {
		return 0, 0
	}
	return restOfLine(text, start)
}

// restOfLine returns the line from start on, at the longest to the quote behind it.
func restOfLine(text string, start int) (int, int) {
	for i := start; i < len(text); i++ {
		switch c := text[i]; {
		case isBreak(c):
			return start, i
		case isQuote(c) && (i == start || text[i-1] == '='): // of a parameter
			if end := quotedEnd(text, i+1, c); end < len(text) && text[end] == c {
				i = end
			}
		case isQuote(c) && (i+1 == len(text) || strings.IndexByte(" ,)]}\n:", text[i+1]) >= 0):
			return start, i
		case c == '\\' && i+1 < len(text) && (text[i+1] == 'n' || text[i+1] == 'r' || text[i+1] == '"'):
			return start, i
		}
	}
	return start, len(text)
}

// isCredential reports whether the word behind the first one, which ends at end, is that of a scheme and no word of a
// sentence.
func isCredential(text string, end int) bool {
	if end == len(text) || text[end] != ' ' {
		return false
	}
	from := end + 1
	end = bareEnd(text, from)
	value := strings.TrimRight(text[from:end], ".,;:!?)")
	return len(value) >= 8 && strings.IndexFunc(value, func(r rune) bool {
		return r >= '0' && r <= '9' || strings.ContainsRune("=+/_:", r)
	}) >= 0 ||
		len(value) >= 3 && strings.Contains(value, "=") || len(value) >= 8 && !isWords(value)
}
