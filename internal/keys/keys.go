// Package keys is the table in which idempotent receivers keep what was applied. It is the same whoever holds the
// transaction, the receiver's own store or a subscriber whose transaction it joins, so that a message which comes one
// way is recognised when it comes the other.
package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxReadable is the longest key, in bytes, that is stored as it is.
	maxReadable = 255
	// hashed begins every key that is stored as its hash, and none that is stored as it is.
	hashed = "sha256:"
)

// Column is the form in which a part of a key stands in a column: what a person can read stays as it is, everything
// else becomes a hash. No two texts have the same form, since what looks like a hash is hashed too.
func Column(s string) string {
	if len(s) <= maxReadable && !strings.HasPrefix(s, hashed) && readable(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hashed + hex.EncodeToString(sum[:])
}

func readable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}
