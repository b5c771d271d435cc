package privacy

import (
	"math/bits"
	"strings"
)

// shape is what tokens of one issuer look like: how they begin, and how many characters follow at least.
type shape struct {
	prefix string
	least  int
	in     func(byte) bool
	behind bool // the beginning is no secret
}

func isUpperOrDigit(c byte) bool { return isUpper(c) || isDigit(c) }

func isToken(c byte) bool { return isWord(c) || c == '-' }

func isHex(c byte) bool { return hex(c) >= 0 }

func isBot(c byte) bool { return isToken(c) || c == ':' }

func isDotted(c byte) bool { return isToken(c) || c == '.' }

// isPath is what a path and a query have. A colon or a comma can be the next word's.
func isPath(c byte) bool { return isDotted(c) || strings.IndexByte("/%@~+=?&!$", c) >= 0 }

func isBase32(c byte) bool { return isUpper(c) || '2' <= c && c <= '7' }

// shapes are keys and tokens that are known by how they look, wherever they stand.
var shapes = []shape{
	{"AKIA", 16, isUpperOrDigit, false}, {"ASIA", 16, isUpperOrDigit, false}, // AWS
	{"ghp_", 20, isWord, false}, {"gho_", 20, isWord, false}, {"ghu_", 20, isWord, false}, {"ghs_", 20, isWord, false},
	{"ghr_", 20, isWord, false}, {"github_pat_", 20, isWord, false},
	{"glpat-", 16, isToken, false},
	{"xoxa-", 10, isToken, false}, {"xoxb-", 10, isToken, false}, {"xoxe-", 10, isToken, false},
	{"xoxp-", 10, isToken, false}, {"xoxr-", 10, isToken, false}, {"xoxs-", 10, isToken, false},
	// Stripe
	{"sk_live_", 10, isWord, false}, {"sk_test_", 10, isWord, false}, {"rk_live_", 10, isWord, false},
	{"rk_test_", 10, isWord, false}, {"whsec_", 16, isWord, false},
	{"AIza", 30, isToken, false}, {"ya29.", 20, isToken, false}, {"GOCSPX-", 16, isToken, false}, // Google
	{"SG.", 32, isDotted, false}, {"npm_", 30, isWord, false}, {"pypi-", 32, isToken, false},
	{"sk-", 20, isToken, false},
	{"dop_v1_", 32, isWord, false}, {"hvs.", 20, isToken, false}, {"dapi", 32, isHex, false},
	{"api.telegram.org/bot", 30, isBot, true},
	{"SU", 56, isBase32, false}, {"SA", 56, isBase32, false}, {"SO", 56, isBase32, false}, // seeds of NATS
	{"shpat_", 24, isWord, false}, {"shpss_", 24, isWord, false}, {"AGE-SECRET-KEY-1", 20, isUpperOrDigit, false},
	// their path is their password
	{"hooks.slack.com/services/", 8, isPath, true}, {"/api/webhooks/", 16, isPath, true},
	{"webhook.office.com/", 16, isPath, true},
}

// authorizations are the schemes of an Authorization header.
var authorizations = []string{"Bearer", "bearer", "BEARER", "Basic", "basic", "BASIC"}

// maxPrefixes is the number of bits of a word.
const maxPrefixes = 64

// prefixes are those of shapes, and then authorizations. begins has a bit for each, by their first and second bytes:
// one look at a text finds all of them.
var prefixes, begins = func() (all []string, by [2][256]uint64) {
	for _, s := range shapes {
		all = append(all, s.prefix)
	}
	all = append(all, authorizations...)
	for n, prefix := range all {
		by[0][prefix[0]] |= 1 << n
		by[1][prefix[1]] |= 1 << n
	}
	return all, by
}()

// findTokens finds keys and tokens by their shapes, JSON web tokens, private keys, and what stands behind Bearer and
// Basic.
func findTokens(text string, found *spans) {
	var goesOn [maxPrefixes]int // what a token has is looked at once: a text of beginnings would take squares
	for i := range max(len(text)-1, 0) {
		at := begins[0][text[i]] & begins[1][text[i+1]]
		if at == 0 || i > 0 && isWord(text[i-1]) && isWord(text[i]) { // of a longer word
			continue
		}
		for ; at != 0; at &= at - 1 {
			n := bits.TrailingZeros64(at)
			switch {
			case i < goesOn[n] || !strings.HasPrefix(text[i:], prefixes[n]):
			case n < len(shapes):
				goesOn[n] = shapes[n].find(text, i, found)
			default:
				goesOn[n] = findBehind(text, i+len(prefixes[n]), found)
			}
		}
	}
	findWebTokens(text, found)
	findPrivateKeys(text, found)
}

// find finds a token that begins at i, and returns where the next one may.
func (s *shape) find(text string, i int, found *spans) (goesOn int) {
	start := i + len(s.prefix)
	end := start
	for end < len(text) && s.in(text[end]) {
		end++
	}
	if end-start < s.least || strings.HasPrefix(text[end:], "@openssh.com") { // the name of a kind of keys
		return start
	}
	if s.behind {
		i = start
	}
	found.add(i, end)
	return end
}

// findWebTokens finds JSON web tokens: base64 of an object, a dot, and more.
func findWebTokens(text string, found *spans) {
	for from := 0; ; {
		i := strings.Index(text[from:], "eyJ")
		if i < 0 {
			return
		}
		i += from
		from = i + 3
		for from < len(text) && isToken(text[from]) {
			from++
		}
		dot := from
		for from < len(text) && isDotted(text[from]) {
			from++
		}
		if dot-i >= 8 && from > dot+1 && (i == 0 || !isWord(text[i-1])) {
			found.add(i, from)
		}
	}
}

// maxKey bounds how far behind its beginning the end of a private key is looked for.
const maxKey = 16 << 10

// findPrivateKeys finds private keys in PEM, also cut ones.
func findPrivateKeys(text string, found *spans) {
	const begin, end, dashes = "-----BEGIN ", "-----END ", "-----"
	for from := 0; ; {
		i := strings.Index(text[from:], begin)
		if i < 0 {
			return
		}
		i += from
		from = i + len(begin)
		title := strings.Index(text[from:min(len(text), from+64)], dashes)
		if title < 0 || !strings.Contains(text[from:from+title], "PRIVATE KEY") {
			continue
		}
		body := from + title + len(dashes)
		stop := body
		for stop < len(text) && (isWord(text[stop]) || isSpace(text[stop]) ||
			strings.IndexByte("\r\n+/=\\:,-", text[stop]) >= 0) {
			stop++
		}
		if e := strings.Index(text[body:min(len(text), body+maxKey)], end); e >= 0 { // with the rest of its line
			stop = body + e + len(end)
			if last := strings.Index(text[stop:min(len(text), stop+64)], dashes); last >= 0 {
				stop += last + len(dashes)
			}
		}
		found.add(i, stop)
		from = max(from, stop)
	}
}

// findBehind finds the credentials behind the scheme of an Authorization header, which ends at from. It returns where
// the next one may begin.
func findBehind(text string, from int, found *spans) (goesOn int) {
	start := from
	for start < len(text) && start < from+8 && isSpace(text[start]) {
		start++
	}
	end := start
	for end < len(text) && (isDotted(text[end]) || strings.IndexByte("~+/=", text[end]) >= 0) {
		end++
	}
	if value := text[start:end]; start > from && len(value) >= 6 && !strings.HasPrefix(value, "realm=") &&
		!isWords(value) {
		found.add(start, end)
		return end
	}
	return from
}

// isWords reports whether value is made of letters of one case, as words are.
func isWords(value string) bool {
	for i := range len(value) {
		if !isLetter(value[i]) && value[i] != '-' && value[i] != '/' && !(value[i] == '.' && i == len(value)-1) ||
			i > 0 && isUpper(value[i]) && !isUpper(value[i-1]) {
			return false
		}
	}
	return true
}
