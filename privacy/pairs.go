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
