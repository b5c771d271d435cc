package sqlproxy

import "strings"

// Plain reports whether a statement begins with one of the given words (upper case) and has no other statement behind
// it. It is false, and the caller must find out by other means, for a statement that
//
//   - begins with a comment,
//   - has a semicolon anywhere,
//   - is one word, which may be the name of a prepared statement,
//   - names set_config, with which a query of PostgreSQL changes settings.
func Plain(statement string, words ...string) bool {
	statement = strings.TrimLeft(statement, " \t\r\n")
	end := strings.IndexFunc(statement, func(r rune) bool { return (r|0x20) < 'a' || (r|0x20) > 'z' })
	if end <= 0 || !strings.ContainsRune(" \t\r\n(/*\"'`", rune(statement[end])) ||
		strings.IndexByte(statement, ';') >= 0 || names(statement, "set_config") {
		return false
	}
	for _, word := range words {
		if strings.EqualFold(statement[:end], word) {
			return true
		}
	}
	return false
}

// names reports whether a word is in a statement, in upper or lower case. It allocates nothing, because it reads every
// statement.
func names(statement, word string) bool {
	for i := 0; i+len(word) <= len(statement); i++ {
		if statement[i]|0x20 == word[0] && strings.EqualFold(statement[i:i+len(word)], word) {
			return true
		}
	}
	return false
}
