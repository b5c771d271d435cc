package privacy

import "strings"

// findURLs finds passwords in URLs, and in addresses that have none of a URL but user and password.
func findURLs(text string, found *spans) {
	if strings.IndexByte(text, '@') < 0 {
		return
	}
	for from := 0; ; {
		i := strings.Index(text[from:], "://")
		if i < 0 {
			break
		}
		i += from
		from = i + 3
		scheme := i
		for scheme > 0 && i-scheme < 32 && (isWord(text[scheme-1]) || strings.IndexByte("+.-", text[scheme-1]) >= 0) {
			scheme--
		}
		http := strings.HasPrefix(strings.ToLower(text[scheme:i]), "http")
		start, end := userInfo(text, from, http, isBlankInURL)
		// of a blank in a password, an error of Go has the whole URL in quotes
		if start == end && scheme > 0 && isQuote(text[scheme-1]) {
			start, end = userInfo(text, from, http, isBreak)
		}
		found.add(start, end)
		findRepeated(text, start, end, found)
	}
	for from := 0; ; {
		i := strings.IndexByte(text[from:], '@')
		if i < 0 {
			return
		}
		i += from
		from = i + 1
		found.add(address(text, i))
	}
}

// maxURL bounds how far behind its scheme the host of a URL is looked for.
const maxURL = 2 << 10

func isBlankInURL(c byte) bool { return isSpace(c) || isBreak(c) || c == '<' || c == '>' }

// userInfo returns the password of the URL whose authority begins at start. Of http, the user too: it can be a token.
// The URL ends at a quote, or where ends says.
func userInfo(text string, start int, http bool, ends func(byte) bool) (int, int) {
	end := start
	for end < len(text) && end-start < maxURL && text[end] != '"' && text[end] != '`' && !ends(text[end]) {
		end++
	}
	token := text[start:end]
	if next := strings.Index(token, "://"); next >= 0 { // several, with a comma between, or one in the query of the other
		for next > 0 && (isWord(token[next-1]) || strings.IndexByte("+.-", token[next-1]) >= 0) {
			next--
		}
		token = token[:max(0, next-1)]
	}
	at := strings.IndexByte(token, '@')
	path := strings.IndexAny(token, "/?#")
	if path >= 0 && at > path {
		// A password with a slash in it, or an @ in the path.
		colon := strings.IndexByte(token[:path], ':')
		if http && (colon < 0 || isDigits(token[colon+1:path])) {
			return 0, 0
		}
		at = strings.LastIndexByte(token, '@')
	} else if at >= 0 {
		if path < 0 {
			path = len(token)
		}
		at = strings.LastIndexByte(token[:path], '@')
	}
	if at < 0 {
		return 0, 0
	}
	if http {
		return start, start + at
	}
	colon := strings.IndexByte(token[:at], ':')
	if colon < 0 {
		return 0, 0
	}
	return start + colon + 1, start + at
}

// address returns the password of user:password@host:port, user:password@host/name, or
// user:password@tcp(host:port)/name, whose @ is at i.
func address(text string, i int) (int, int) {
	// of package mysql, or an address of IPv6
	if rest := text[i+1:]; strings.HasPrefix(rest, "/") ||
		len(rest) > 2 && rest[0] == '[' && (isHex(rest[1]) || rest[1] == ':') {
		return pairBefore(text, i)
	}
	end := i + 1
	for end < len(text) && end-i < 256 && (isWord(text[end]) || text[end] == '.' || text[end] == '-') {
		end++
	}
	switch {
	case end == len(text) || end == i+1 && text[end] != '(':
		return 0, 0
	case text[end] == ':':
		if end+1 == len(text) || !isDigit(text[end+1]) {
			return 0, 0
		}
	case text[end] != '(' && text[end] != '/':
		return 0, 0
	}
	return pairBefore(text, i)
}

// pairBefore returns the password of the user:password that ends at i.
func pairBefore(text string, i int) (int, int) {
	start := i
	for start > 0 && i-start < 128 && !isSpace(text[start-1]) && !isBreak(text[start-1]) && !isQuote(text[start-1]) &&
		text[start-1] != '=' {
		start--
	}
	colon := strings.IndexByte(text[start:i], ':')
	if colon < 1 || strings.HasPrefix(text[start+colon:], "://") || start+colon+1 == i {
		return 0, 0
	}
	for j := start; j < start+colon; j++ {
		if !isName(text[j]) && text[j] != '+' {
			return 0, 0
		}
	}
	return start + colon + 1, i
}
