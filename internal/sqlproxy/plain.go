package sqlproxy

import "strings"

// Plain tells whether a statement is one of those that begin with the given words (upper case), and nothing behind it.
// One that begins with a comment, or has a semicolon anywhere, or is one word, which may be the name of a prepared
// statement, is not: who asks must then make sure by other means. Nor is one that names set_config, by which a query of
// PostgreSQL changes settings.
func Plain(statement string, words ...string) bool {
	statement = strings.TrimLeft(statement, " \t\r\n")
	end := strings.IndexFunc(statement, func(r rune) bool { return (r|0x20) < 'a' || (r|0x20) > 'z' })
	if end <= 0 || !strings.ContainsRune(" \t\r\n(/*\"'`", rune(statement[end])) || strings.IndexByte(statement, ';') >= 0 ||
		names(statement, "set_config") {
		return false
	}
	for _, word := range words {
		if strings.EqualFold(statement[:end], word) {
			return true
		}
	}
	return false
}

// names tells whether a word stands in a statement, in whatever case. It allocates nothing: every statement comes by here.
func names(statement, word string) bool {
	for i := 0; i+len(word) <= len(statement); i++ {
		if statement[i]|0x20 == word[0] && strings.EqualFold(statement[i:i+len(word)], word) {
			return true
		}
	}
	return false
}
