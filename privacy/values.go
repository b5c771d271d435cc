package privacy

import (
	"regexp"
	"slices"
	"strings"
)

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

// flagAt returns the value of a flag of a command line that begins at p: --password x, or -password x as package flag
// has it.
func flagAt(text string, p int) (start, end int) {
	if p > 0 && !isSpace(text[p-1]) && !isQuote(text[p-1]) {
		return 0, 0
	}
	flag := flagForm.FindStringSubmatch(text[p:min(len(text), p+maxName+10)])
	if flag == nil || kindOf(flag[1]) == harmless || kindOf(flag[1]) == several {
		return 0, 0
	}
	start, end = valueAt(text, p+len(flag[0]), secret, false)
	if start < end && aboutFlags[text[start:end]] {
		return 0, 0
	}
	return start, end
}

var flagForm = regexp.MustCompile(`^--?([\w.-]+)[ \t]{1,8}`)

// aboutFlags are words behind a flag that speak of it, as a usage does: -password string.
var aboutFlags = setOf(`string value and or is are was must cannot to for with not flag flags option needs requires in on
	file expired`)

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

// repeated is the end of a URL in quotes, and what an error of package net/url repeats of it behind it:
//
//	parse "amqp://ops:hun/ter2@mq": invalid port ":hun" after host
//	parse "amqp://ops:hun%ter2@mq": invalid URL escape "%te"
var repeated = regexp.MustCompile(`^[^" \n]*": [^"\n]{0,62}":?((?:[^"\\\n]|\\.)+)`)

// findRepeated finds what an error repeats of the password of a URL, from start to end.
func findRepeated(text string, start, end int, found *spans) {
	if start == end {
		return
	}
	behind := text[end:min(len(text), end+maxURL)]
	if at := repeated.FindStringSubmatchIndex(behind); at != nil && strings.Contains(text[start:end], behind[at[2]:at[3]]) {
		found.add(end+at[2], end+at[3])
	}
}

// forms are secrets that are known by what stands around them: their groups, or all of it. A text that lacks a word is
// not looked at.
var forms = []struct {
	has  string
	form *regexp.Regexp
	ok   func(groups []string) bool // or nil
}{
	// JSON web tokens
	{"eyJ", regexp.MustCompile(`\beyJ[\w-]{5,}\.[\w.-]+`), nil},
	// what Azure AD, Terraform Cloud, MaxMind and Facebook give to programs
	{"Q~", regexp.MustCompile(`(?:^|[^\w.~-])([\w.~]{3}\dQ~[\w.~-]{31,34})`), nil},
	{".atlasv1.", regexp.MustCompile(`\b\w{14}\.atlasv1\.[\w=-]{60,}`), nil},
	{"_mmk", regexp.MustCompile(`\b[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk\b`), nil},
	{"|", regexp.MustCompile(`\b\d{15,16}\|[\w-]{27,40}`), nil},
	// private keys in PEM, also cut ones
	{"PRIVATE KEY", regexp.MustCompile(`-----BEGIN [^\n-]{0,40}PRIVATE KEY[^\n-]{0,20}-----` +
		`(?:(?:[^-]|-[^-])*-----END [^\n-]{0,60}-----|[\w\s+/=\\:,-]*)`), nil},
	// net/url, in a URL that a # in the password cut: parse "amqp://ops:hun": invalid port ":hun" after host
	{`": invalid port ":`, regexp.MustCompile(`:([^:"\n]+)": invalid port ":([^"\n]+)" after host`),
		func(groups []string) bool { return groups[1] == groups[2] && !isDigits(groups[1]) }},
	// a url.URL as fmt prints it with %+v
	{" User:", regexp.MustCompile(` User:[^\s{}:]*:([^\s{}]+) Host:`), nil},
	// package flag, or pflag: invalid value "x" for flag -password, or invalid argument "x" for "--password" flag
	{`" for `, regexp.MustCompile(`(?:value|argument) "([^\n]*?)" for (?:flag -|"-)[\w.-]+`),
		func(groups []string) bool { k := kindOf(groups[0]); return k != harmless && k != several }},
}

func findForms(text string, found *spans) {
	for _, f := range forms {
		if !strings.Contains(text, f.has) {
			continue
		}
		for _, at := range f.form.FindAllStringSubmatchIndex(text, -1) {
			if f.ok == nil || f.ok(groupsOf(text, at)) {
				found.addGroups(at)
			}
		}
	}
}

func groupsOf(text string, at []int) (groups []string) {
	for i := 0; i < len(at); i += 2 {
		groups = append(groups, text[at[i]:at[i+1]])
	}
	return groups
}

// Mark stands in the place of each masked value.
const Mark = "[redacted]"

// span is a part of a text that is masked: from start up to end.
type span struct{ start, end int }

// spans collects what the finders find, in any order.
type spans []span

func (s *spans) add(start, end int) {
	if start < end {
		*s = append(*s, span{start, end})
	}
}

// addGroups adds the groups of a match, or all of it if it has no groups.
func (s *spans) addGroups(at []int) {
	if len(at) > 2 {
		at = at[2:]
	}
	for ; len(at) > 0; at = at[2:] {
		s.add(at[0], at[1]) // -1 for a group that is not in the match
	}
}

// merged returns the spans in order, without overlaps, and without those that lie in a mark that text already has.
func (s spans) merged(text string) spans {
	if len(s) == 0 {
		return nil
	}
	slices.SortFunc(s, func(a, b span) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return b.end - a.end
	})
	marked := marks.FindAllStringIndex(text, -1)
	var out spans
	for _, one := range s {
		for len(marked) > 0 && marked[0][1] <= one.start {
			marked = marked[1:]
		}
		if len(marked) > 0 && marked[0][0] <= one.start && one.end <= marked[0][1] {
			continue
		}
		if last := len(out) - 1; last >= 0 && one.start <= out[last].end {
			out[last].end = max(out[last].end, one.end)
			continue
		}
		out = append(out, one)
	}
	return out
}

var marks = regexp.MustCompile(regexp.QuoteMeta(Mark))

// masked returns text with Mark in the place of each span. The spans are merged.
func (s spans) masked(text string) string {
	if len(s) == 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + len(s)*len(Mark))
	from := 0
	for _, one := range s {
		b.WriteString(text[from:one.start])
		b.WriteString(Mark)
		from = one.end
	}
	b.WriteString(text[from:])
	return b.String()
}

// cutMark is how a text ends that was cut before it came here: see boundedtext.
const cutMark = "…[cut, "

// findCut finds what was cut in two where a text was cut before it was masked, and can be half of a secret: a word with
// more than letters in it, or a long one. Half of a secret has no shape.
func findCut(text string, found *spans) {
	for from := 0; ; {
		cut := strings.Index(text[from:], cutMark)
		if cut < 0 {
			return
		}
		cut += from
		from = cut + len(cutMark)
		start, plain := cut, true
		for start > 0 && cut-start < overlap && !isSpace(text[start-1]) && !isBreak(text[start-1]) &&
			strings.IndexByte("\"'`{}[](),;&<>", text[start-1]) < 0 {
			start--
			plain = plain && isLetter(text[start])
		}
		if url := strings.LastIndex(text[max(0, cut-512):cut], "://"); url >= 0 &&
			!strings.ContainsAny(text[max(0, cut-512)+url:cut], "@ \n\"") {
			start, plain = min(start, max(0, cut-512)+url+3), false // the @ is behind the cut
		}
		// groups of a card
		for start >= 5 && cut-start < 32 && text[start-1] == ' ' && isDigits(text[start-5:start-1]) &&
			isDigit(text[start]) {
			start -= 5
		}
		if !plain || cut-start > 12 {
			found.add(start, cut)
		}
	}
}

func isDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return true
}
