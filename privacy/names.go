package privacy

import "strings"

// kind is what a name says of its value.
type kind uint8

const (
	harmless kind = iota
	secret        // a token, a key
	password      // a word of its own can be the value
	several       // an array or an object of secrets; a number is a count
	line          // the value is the rest of the line, such as that of an Authorization header
)

// suffixes are the ends of names whose values are masked: lower case, letters alone.
var suffixes = []struct {
	kind  kind
	names []string
}{
	{password, strings.Fields(`password passwd passwort passphrase passcode pwd passwordhash passwordconfirmation
		passwordconfirm`)},
	{secret, strings.Fields(`secret token apikey accesskey secretkey privatekey sharedkey accountkey authkey signingkey
		encryptionkey masterkey sessionkey subscriptionkey secretvalue secretstring credential credentials jwt sessionid
		sessid sharedaccesssignature amzsignature googsignature cardnumber creditcard ccnumber cardno securitycode`)},
	{several, strings.Fields(`secrets passwords apikeys`)},
	{line, strings.Fields(`authorization cookie`)},
}

// whole are names that are masked only as a word of their own: "pin" is, "spin" and "mapping" are not.
var whole = map[string]kind{"pass": secret, "pin": secret, "otp": secret, "cvv": secret, "cvc": secret, "ssn": secret,
	"sig": secret}

// pages are names that end like those of secrets, and are places in a list.
var pages = []string{"pagetoken", "nexttoken", "continuationtoken", "synctoken", "pagingtoken"}

// maxName bounds how much of a name is looked at: its end.
const maxName = 64

// kindOf returns what the name says of its value.
func kindOf(name string) kind {
	if len(name) > maxName {
		name = name[len(name)-maxName:]
	}
	var letters [maxName]byte
	n, word := 0, 0 // word is where the last word of the name begins
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z':
		case 'A' <= c && c <= 'Z':
			if i > 0 && ('a' <= name[i-1] && name[i-1] <= 'z' ||
				isUpper(name[i-1]) && i+1 < len(name) && isLetter(name[i+1]) && !isUpper(name[i+1])) {
				word = n
			}
			c |= 0x20
		case '0' <= c && c <= '9':
			continue // password2, cvv2
		default:
			word = n
			continue
		}
		letters[n] = c
		n++
	}
	all := string(letters[:n])
	if n < 3 {
		return harmless
	}
	if k, ok := whole[all[word:]]; ok {
		return k
	}
	if endsInOne(all, pages) {
		return harmless
	}
	for _, s := range suffixes {
		if endsInOne(all, s.names) {
			return s.kind
		}
	}
	return harmless
}

// namesOne reports whether the value of a name is one secret.
func namesOne(name string) bool {
	k := kindOf(name)
	return k != harmless && k != several
}

// endsInOne reports whether name ends in one of ends. A closure would put each name on the heap.
func endsInOne(name string, ends []string) bool {
	for _, end := range ends {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// isName reports whether c can be in a name.
func isName(c byte) bool { return isWord(c) || c == '-' || c == '.' }

// isWord reports whether c can be in a word: an ASCII letter, a digit, or an underscore.
func isWord(c byte) bool { return isLetter(c) || isDigit(c) || c == '_' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// isBreak reports whether c ends a line, or is another control character.
func isBreak(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }

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
var rejections = setOf(`required missing invalid expired empty wrong denied forbidden unauthorized failed unknown
	mismatch incorrect timeout canceled cancelled eof unset rejected refused blank yes no`)

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for _, word := range strings.Fields(words) {
		set[word] = true
	}
	return set
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
