package privacy

import "strings"

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
