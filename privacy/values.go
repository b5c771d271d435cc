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
	// an escaped quote: find looks at the text without escapes too
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
			return start, restOfLine(text, start)
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
func bareEnd(text string, from int) int { return from + bareEnds.FindStringIndex(text[from:])[0] }

var bareEnds = regexp.MustCompile("[\\s\"'`<>" + control + "]|[,;&|](?:[\\s\"'`" + control + "]|" + pair + "|\\z)" +
	`|[)\]}](?:[\s,;:.)\]}"'` + control + `]|\z)|\\[nrt"'u]|\z`)

const (
	control = `\x00-\x08\x0a-\x1f\x7f`
	pair    = `[\w.-]{1,64}[=:]` // a name and a separator
)

var isPair = regexp.MustCompile("^" + pair).MatchString

// isScheme says whether the first word of a header is a scheme of authorization, or has more than letters in it. Other
// words behind "authorization: " are a sentence.
var isScheme = regexp.MustCompile(`[=0-9]|^(?i:bearer|basic|digest|negotiate|ntlm|token|apikey|oauth|hawk|` +
	`signature|key)$`).MatchString

// lineAt returns the value of a header that begins at start, which is the rest of its line.
func lineAt(text string, start int) (int, int) {
	word := bareEnd(text, start)
	first := text[start:word]
	if isNothing(first) || !isScheme(first) && !isCredential(text, word) && isProse(text, start, word, secret) {
		return 0, 0
	}
	return start, restOfLine(text, start)
}

// restOfLine returns where the line ends, at the latest at a quote behind it that belongs to no parameter.
func restOfLine(text string, start int) int { return start + len(headers.FindString(text[start:])) }

var headers = func() *regexp.Regexp {
	const quoted = `"(?:[^"\\` + control + `]|\\.)*"|'(?:[^'\\` + control + `]|\\.)*'`
	return regexp.MustCompile(`^(?:` + quoted + `)?(?:=(?:` + quoted + "|[\"'`])|[^\"'`\\\\" + control + "]|" +
		`\\[^nr"]|` + "[\"'`]+[^\"'` ,)\\]}:" + control + "])*")
}()

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

// elementAt returns the text of the XML element whose tag ends at p.
func elementAt(text string, p int) (start, end int) {
	from := max(0, p-256)
	tag := elementTag.FindStringSubmatch(text[from+max(0, strings.LastIndexByte(text[from:p], '<')) : p+1])
	if tag == nil || !namesOne(tag[1]) {
		return 0, 0
	}
	at := elementText.FindStringSubmatchIndex(text[p+1:])
	for ; len(at) > 2; at = at[:len(at)-2] {
		if start, end = at[len(at)-2], at[len(at)-1]; start >= 0 {
			return p + 1 + start, p + 1 + end
		}
	}
	return 0, 0
}

// elementText is CDATA, other elements, or text. AUTH <password> needs a password.
var (
	elementTag  = regexp.MustCompile(`^<([^\s<>/]+)(?:\s[^<>]*[^<>/])?>$`)
	elementText = regexp.MustCompile(`^(?:\s*<!\[CDATA\[((?s:.*?))(?:\]\]>|\z)|` +
		`((?:\s*<[^/!<>][^<>]*>[^<]*(?:</[^<>]+>)?)+)|([^ <][^<]*)|( [^<]*)</)`)
)

// flagAt returns the value of a flag of a command line that begins at p: --password x, or -password x as package flag
// has it.
func flagAt(text string, p int) (start, end int) {
	if p > 0 && !isSpace(text[p-1]) && !isQuote(text[p-1]) {
		return 0, 0
	}
	flag := flagForm.FindStringSubmatch(text[p:min(len(text), p+maxName+10)])
	if flag == nil || !namesOne(flag[1]) {
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
var aboutFlags = setOf(`string value and or is are was must cannot to for with not flag flags option needs requires in
	on file expired`)

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

// addGroups adds the groups of a match in the text behind from, or all of it if it has no groups.
func (s *spans) addGroups(at []int, from int) {
	if len(at) > 2 {
		at = at[2:]
	}
	for ; len(at) > 0; at = at[2:] {
		s.add(from+at[0], from+at[1]) // both are less for a group that is not in the match
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

func isDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return true
}
