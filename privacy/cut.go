package privacy

import "strings"

// cutMark is how a text ends that was cut before it came here: see boundedtext.
const cutMark = "…[cut, "

// findCut finds what was cut in two where a text was cut before it was masked, and can be half of a secret: a word with
// more than letters in it, or a long one. Half of a secret has no shape.
func findCut(text string, found *spans) {
	for from := 0; ; {
		cut := strings.Index(text[from:], cutMark)
		if cut < 0 {
			return
		}
		cut += from
		from = cut + len(cutMark)
		start, plain := cut, true
		for start > 0 && cut-start < overlap && !isSpace(text[start-1]) && !isBreak(text[start-1]) &&
			strings.IndexByte("\"'`{}[](),;&<>", text[start-1]) < 0 {
			start--
			plain = plain && isLetter(text[start])
		}
		if url := strings.LastIndex(text[max(0, cut-512):cut], "://"); url >= 0 &&
			!strings.ContainsAny(text[max(0, cut-512)+url:cut], "@ \n\"") {
			start, plain = min(start, max(0, cut-512)+url+3), false // the @ is behind the cut
		}
		// groups of a card
		for start >= 5 && cut-start < 32 && text[start-1] == ' ' && isDigits(text[start-5:start-1]) && isDigit(text[start]) {
			start -= 5
		}
		if !plain || cut-start > 12 {
			found.add(start, cut)
		}
	}
}

func isDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return true
}
