// Package erasedtext takes the values of a person from texts that people wrote: reasons, details, edits. A value that
// is short could be a part of other words, so only a text that is nothing else is replaced then.
package erasedtext

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
)

// Word takes the place of a value.
const Word = "erased"

// shortest is the length in bytes of a value that is looked for within texts.
const shortest = 4

// Replace returns the text with Word in the place of the values.
func Replace(text string, values []string) string {
	for _, value := range values {
		switch {
		case value == "":
		case text == value:
			return Word
		case len(value) >= shortest:
			text = strings.ReplaceAll(text, value, Word)
		}
	}
	return text
}

// Selector returns the hash that is on record for ids or metadata, so that the record of an erasure is found by those
// who know what was asked for. A value that can be guessed can be recognised by it.
func Selector(ids []string, metadata map[string]string) string {
	parts := metadatacodec.Append(nil, "spillway erasure")
	for _, id := range slices.Sorted(slices.Values(ids)) {
		parts = metadatacodec.Append(parts, id)
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		parts = metadatacodec.Append(metadatacodec.Append(parts, key), metadata[key])
	}
	sum := sha256.Sum256(parts)
	return "sha256:" + hex.EncodeToString(sum[:])
}
