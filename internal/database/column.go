package database

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxReadable is the longest key, in bytes, that is stored as it is.
	maxReadable = 255
	// hashed begins every key that is stored as its hash, and none that is stored as it is.
	hashed = "sha256:"
)

// Column returns the form in which s stands in a column that is part of a key: at most 255 bytes of valid text. What a
// person can read stays as it is. Everything else becomes a hash. No two texts have the same form, since what looks
// like a hash is hashed too.
func Column(s string) string {
	if len(s) <= maxReadable && !strings.HasPrefix(s, hashed) && readable(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hashed + hex.EncodeToString(sum[:])
}

// invisible are ranges of what a person cannot see: controls, separators, marks of direction, noncharacters, private
// use. They are fixed, not those of package unicode: with a later Unicode a key must stand in the column as it did.
var invisible = [][2]rune{
	{0x7f, 0xa0}, {0xad, 0xad}, {0x61c, 0x61c}, {0x180b, 0x180f}, {0x2000, 0x200f}, {0x2028, 0x202f}, {0x205f, 0x206f},
	{0x3000, 0x3000}, {0xe000, 0xf8ff}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xfff0, 0xffff}, {0x1fffe, 0x1ffff},
	{0xe0000, 0x10ffff},
}

func readable(s string) bool {
	for _, r := range s {
		if ' ' <= r && r < 0x7f { // as in nearly all keys
			continue
		}
		if r < ' ' || slices.ContainsFunc(invisible, func(from [2]rune) bool { return from[0] <= r && r <= from[1] }) {
			return false
		}
	}
	return utf8.ValidString(s)
}
