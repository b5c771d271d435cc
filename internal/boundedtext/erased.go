package boundedtext

import "strings"

// ErasedWord takes the place of a value of a person.
const ErasedWord = "erased"

// shortest is the length in bytes of a value that is looked for within texts: a shorter one could be a part of other
// words, so only a text that is nothing else is replaced then.
const shortest = 4

// Erased returns a text that people wrote, such as a reason, a detail or an edit, with ErasedWord in the place of values.
func Erased(text string, values []string) string {
	for _, value := range values {
		switch {
		case value == "":
		case text == value:
			return ErasedWord
		case len(value) >= shortest:
			text = strings.ReplaceAll(text, value, ErasedWord)
		}
	}
	return text
}
