package privacy

import "strings"

// findPairs finds the values of pairs whose name is that of a secret, as people and programs write pairs: password=x,
// "password": "x", Password:x (as fmt prints a struct), <password>x</password>, --password x, Authorization: Bearer x,
// and invalid password "x".
func findPairs(text string, found *spans) {
	for i := 0; i < len(text); {
		p := strings.IndexAny(text[i:], `=:>"'-`)
		if p < 0 {
			return
		}
		p += i
		i = p + 1
		start, end := 0, 0
		switch text[p] {
		case '=', ':':
			start, end = pairAt(text, p)
		case '>':
			start, end = elementAt(text, p)
		case '-':
			start, end = flagAt(text, p)
		default:
			start, end = quotedAfterWord(text, p)
		}
		if start < end {
			found.add(start, end)
			i = max(i, end)
		}
	}
}

// pairAt returns the value of the pair whose separator is at p.
func pairAt(text string, p int) (start, end int) {
	k := kindOf(nameBefore(text, p))
	if k == harmless {
		return 0, 0
	}
	start = p + 1
	if start < len(text) && (text[start] == '=' || text[start] == '>') { // := == =>
		start++
	}
	spaced := start
	for start < len(text) && start < spaced+8 && isSpace(text[start]) {
		start++
	}
	if start > spaced && text[p] == '=' && !isSpace(text[p-1]) && isPair(text[start:]) { // password= port=1
		return 0, 0
	}
	return valueAt(text, start, k, start > spaced && text[p] == ':')
}

// maxBlanks is the number of blanks between a name and its separator, where these stand below each other.
const maxBlanks = 32

// nameBefore returns the name that ends before p.
func nameBefore(text string, p int) string {
	end := p
	for least := max(0, p-maxBlanks); end > least && isSpace(text[end-1]); {
		end--
	}
	for least := max(0, end-8); end > least && (isQuote(text[end-1]) || text[end-1] == '\\' || text[end-1] == ']'); {
		end--
	}
	start := end
	for start > 0 && end-start < maxName && isName(text[start-1]) {
		start--
	}
	name := text[start:end]
	if strings.EqualFold(name, "key") && start > 1 && text[start-1] == ' ' { // API key: x
		at := start - 1
		for at > 0 && start-at < 16 && isLetter(text[at-1]) {
			at--
		}
		name = text[at:start-1] + name
	}
	return name
}

// valueAt returns the value that begins at start. prose reports that the value may be the next words of a sentence, as
// in "parse token: unexpected end".
func valueAt(text string, start int, k kind, prose bool) (int, int) {
	rest := text[start:]
	switch {
	case rest == "" || isBreak(rest[0]) || rest[0] == '\\': // an escaped quote: findIn looks at the text without escapes too
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
		if k == line && end+1 < len(text) && text[end] == rest[0] && text[end+1] == ';' { // cookies, the first one in quotes
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

// bareEnd returns where a value without quotes ends. A separator ends the value only if what follows looks like something new.
func bareEnd(text string, from int) int {
	for i := from; i < len(text); i++ {
		switch c := text[i]; {
		case isSpace(c) || isBreak(c) || isQuote(c) || c == '<' || c == '>':
			return i
		case c == ',' || c == ';' || c == '&' || c == '|':
			if i+1 == len(text) || isSpace(text[i+1]) || isBreak(text[i+1]) || isQuote(text[i+1]) || isPair(text[i+1:]) {
				return i
			}
		case c == ')' || c == ']' || c == '}':
			if i+1 == len(text) || isSpace(text[i+1]) || isBreak(text[i+1]) || strings.IndexByte(`,;:.)]}"'`, text[i+1]) >= 0 {
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

// isCredential reports whether the word behind the first one, which ends at end, is that of a scheme and no word of a sentence.
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

// maxElement bounds how far the end of an element with elements in it is looked for.
const maxElement = 512

// elementAt returns the text of the XML element whose tag ends at p.
func elementAt(text string, p int) (start, end int) {
	from := strings.LastIndexByte(text[max(0, p-256):p], '<')
	if from < 0 {
		return 0, 0
	}
	name := text[max(0, p-256)+from+1 : p]
	if blank := strings.IndexAny(name, " \t\r\n"); blank >= 0 {
		name = name[:blank]
	}
	if k := kindOf(name); strings.HasPrefix(name, "/") || strings.HasSuffix(text[:p], "/") || k == harmless ||
		k == several {
		return 0, 0
	}
	start = p + 1
	rest := text[start:]
	if inside := strings.TrimLeft(rest[:min(len(rest), 64)], " \t\r\n"); strings.HasPrefix(inside, "<") &&
		!strings.HasPrefix(inside, "</") {
		if strings.HasPrefix(inside, cdata) {
			start += strings.Index(rest, cdata) + len(cdata)
			if end = strings.Index(text[start:], "]]>"); end >= 0 {
				return start, start + end
			}
			return start, len(text)
		}
		if end = strings.Index(rest[:min(len(rest), maxElement)], "</"+name); end >= 0 {
			return start, start + end
		}
	}
	if end = strings.IndexByte(rest, '<'); end < 0 {
		if strings.HasPrefix(rest, " ") { // AUTH <password> needs a password
			return 0, 0
		}
		end = len(rest)
	}
	return start, start + end
}

const cdata = "<![CDATA["

// flagAt returns the value of a flag of a command line that begins at p: --password x, or -password x as package flag has it.
func flagAt(text string, p int) (start, end int) {
	if p+2 >= len(text) || p > 0 && !isSpace(text[p-1]) && !isQuote(text[p-1]) {
		return 0, 0
	}
	name := p + 1
	if text[name] == '-' {
		name++
	}
	end = name
	for end < len(text) && end < name+maxName && isName(text[end]) {
		end++
	}
	if end == len(text) || !isSpace(text[end]) {
		return 0, 0
	}
	k := kindOf(text[name:end])
	if k == harmless || k == several {
		return 0, 0
	}
	for start = end; start < len(text) && start < end+8 && isSpace(text[start]); {
		start++
	}
	start, end = valueAt(text, start, secret, false)
	if start < end && aboutFlags[text[start:end]] {
		return 0, 0
	}
	return start, end
}

// aboutFlags are words behind a flag that speak of it, as a usage does: -password string.
var aboutFlags = map[string]bool{
	"string": true, "value": true, "and": true, "or": true, "is": true, "are": true, "was": true, "must": true,
	"cannot": true, "to": true, "for": true, "with": true, "not": true, "flag": true, "flags": true, "option": true,
	"needs": true, "requires": true, "in": true, "on": true, "file": true, "expired": true,
}

// quotedAfterWord returns the quoted text at p if the word before is password, or the like: invalid password "x".
func quotedAfterWord(text string, p int) (start, end int) {
	if p < 4 || text[p-1] != ' ' {
		return 0, 0
	}
	at := p - 1
	for at > 0 && p-at < maxName && isName(text[at-1]) {
		at--
	}
	word := text[at : p-1]
	if kindOf(word) != password &&
		!(strings.EqualFold(word, "by") && at > 10 && strings.EqualFold(text[at-11:at-1], "identified")) {
		return 0, 0
	}
	return p + 1, quotedEnd(text, p+1, text[p])
}

// isNothing reports whether a value says that there is none, or is masked by others.
func isNothing(value string) bool {
	if len(value) > 16 {
		return false
	}
	switch strings.ToLower(value) {
	case "", "nil", "null", "none", "true", "false", "undefined", "%s", "%v", "%q", "?":
		return true
	}
	return strings.Trim(value, "*") == ""
}

// rejections are words that stand alone behind "password: " and are no password.
var rejections = map[string]bool{
	"required": true, "missing": true, "invalid": true, "expired": true, "empty": true, "wrong": true, "denied": true,
	"forbidden": true, "unauthorized": true, "failed": true, "unknown": true, "mismatch": true, "incorrect": true,
	"timeout": true, "canceled": true, "cancelled": true, "eof": true, "unset": true, "rejected": true, "refused": true,
	"blank": true, "yes": true,
	"no": true,
}

// isProse reports whether the value from start to end is the next word of a sentence.
func isProse(text string, start, end int, k kind) bool {
	value := text[start:end]
	if len(value) > 256 {
		return false
	}
	if strings.HasSuffix(value, ":") { // the next error in a chain
		return true
	}
	// token: 401 Unauthorized
	if len(value) == 3 && k != password && isDigits(value) && end+1 < len(text) && text[end] == ' ' &&
		isUpper(text[end+1]) {
		return true
	}
	value = strings.TrimRight(value, ".,;!?)")
	upper := 0
	for i := range len(value) {
		if !isLetter(value[i]) {
			return false
		}
		if i > 0 && isUpper(value[i]) && !isUpper(value[i-1]) {
			upper++
		}
	}
	if upper > 0 && len(value) > 5 {
		return false
	}
	if next := end; next+1 < len(text) && text[next] == ' ' && !isBreak(text[next+1]) {
		return true
	}
	return k != password && len(value) < 16 || rejections[strings.ToLower(value)]
}
