package privacy

import "strings"

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
