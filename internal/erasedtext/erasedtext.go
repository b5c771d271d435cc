// Package erasedtext takes the values of a person from texts that people wrote: reasons, details, edits. A value that
// is short could be a part of other words, so only a text that is nothing else is replaced then.
package erasedtext

import "strings"

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
