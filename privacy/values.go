package privacy

import (
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

// maxRepeated bounds how far behind a URL an error repeats a part of it.
const maxRepeated = 64

// findRepeated finds what an error of package net/url repeats of the password from start to end, behind the URL in
// quotes:
//
//	parse "amqp://ops:hun/ter2@mq": invalid port ":hun" after host
//	parse "amqp://ops:hun%ter2@mq": invalid URL escape "%te"
func findRepeated(text string, start, end int, found *spans) {
	if start == end {
		return
	}
	quote := strings.IndexAny(text[end:min(len(text), end+maxURL)], "\" \n")
	if quote < 0 || text[end+quote] != '"' {
		return
	}
	from := end + quote + 1
	open := strings.IndexByte(text[from:min(len(text), from+maxRepeated)], '"')
	if open < 0 || !strings.HasPrefix(text[from:], ": ") {
		return
	}
	from += open + 1
	if from < len(text) && text[from] == ':' {
		from++
	}
	if part := text[from:quotedEnd(text, from, '"')]; strings.Contains(text[start:end], part) {
		found.add(from, from+len(part))
	}
}

// findGoForms finds passwords in texts that packages of Go make, and that no name stands before.
func findGoForms(text string, found *spans) {
	findEach(text, `": invalid port ":`, func(at, behind int) { findPort(text, at, behind, found) })
	findEach(text, " Host:", func(at, _ int) { found.add(userOfURL(text, at)) })
	for _, flag := range []string{`" for flag -`, `" for "-`} {
		findEach(text, flag, func(at, behind int) { found.add(valueOfFlag(text, at, behind)) })
	}
}

// findEach calls f with where each part begins and ends.
func findEach(text, part string, f func(at, behind int)) {
	for from := 0; ; {
		i := strings.Index(text[from:], part)
		if i < 0 {
			return
		}
		f(from+i, from+i+len(part))
		from += i + len(part)
	}
}

// findPort finds what net/url took for a port, in a URL that a # in the password cut: parse "amqp://ops:hun": invalid
// port ":hun" after host.
func findPort(text string, at, behind int, found *spans) {
	end := quotedEnd(text, behind, '"')
	port := text[behind:end]
	if port == "" || !strings.HasPrefix(text[end:], `" after host`) || isDigits(port) {
		return
	}
	if !strings.HasSuffix(text[max(0, at-len(port)-1):at], ":"+port) { // a password behind which there is an @
		return
	}
	found.add(at-len(port), at)
	found.add(behind, end)
}

// userOfURL returns the password of a url.URL as fmt prints it with %+v: {Scheme:amqp Opaque: User:ops:hunter2 Host:mq
// …}. at is the blank before Host.
func userOfURL(text string, at int) (int, int) {
	const user = " User:"
	from := max(0, at-256)
	i := strings.LastIndex(text[from:at], user)
	if i < 0 {
		return 0, 0
	}
	start := from + i + len(user)
	colon := strings.IndexByte(text[start:at], ':')
	if colon < 0 || strings.ContainsAny(text[start:at], " \n{}") {
		return 0, 0
	}
	return start + colon + 1, at
}

// valueOfFlag returns the value that package flag, or pflag, could not parse: invalid value "x" for flag -password, or
// invalid argument "x" for "--password" flag. at is the quote behind the value, and behind is in the flag's name.
func valueOfFlag(text string, at, behind int) (int, int) {
	end := behind
	for end < len(text) && end < behind+maxName && isName(text[end]) {
		end++
	}
	if k := kindOf(text[behind:end]); k == harmless || k == several {
		return 0, 0
	}
	from := max(0, at-256)
	for _, begin := range []string{`value "`, `argument "`} {
		if i := strings.LastIndex(text[from:at], begin); i >= 0 {
			return from + i + len(begin), at
		}
	}
	return 0, 0
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
	marked := marksIn(text)
	var out spans
	for _, one := range s {
		for len(marked) > 0 && marked[0].end <= one.start {
			marked = marked[1:]
		}
		if len(marked) > 0 && marked[0].start <= one.start && one.end <= marked[0].end {
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

func marksIn(text string) (out spans) {
	for from := 0; ; {
		i := strings.Index(text[from:], Mark)
		if i < 0 {
			return out
		}
		out.add(from+i, from+i+len(Mark))
		from += i + len(Mark)
	}
}

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
