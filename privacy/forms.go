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
