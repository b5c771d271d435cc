package privacy

import (
	"slices"
	"strings"
)

// Mark stands in the place of each masked value.
const Mark = "[redacted]"

// span is a part of a text that is masked: from start up to end.
type span struct{ start, end int }

// spans collects what the finders find, in any order.
type spans []span

func (s *spans) add(start, end int) {
	if start < end {
		*s = append(*s, span{start, end})
	}
}

// merged returns the spans in order, without overlaps, and without those that lie in a mark that text already has.
func (s spans) merged(text string) spans {
	if len(s) == 0 {
		return nil
	}
	slices.SortFunc(s, func(a, b span) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return b.end - a.end
	})
	marked := marksIn(text)
	var out spans
	for _, one := range s {
		for len(marked) > 0 && marked[0].end <= one.start {
			marked = marked[1:]
		}
		if len(marked) > 0 && marked[0].start <= one.start && one.end <= marked[0].end {
			continue
		}
		if last := len(out) - 1; last >= 0 && one.start <= out[last].end {
			out[last].end = max(out[last].end, one.end)
			continue
		}
		out = append(out, one)
	}
	return out
}

func marksIn(text string) (out spans) {
	for from := 0; ; {
		i := strings.Index(text[from:], Mark)
		if i < 0 {
			return out
		}
		out.add(from+i, from+i+len(Mark))
		from += i + len(Mark)
	}
}

// masked returns text with Mark in the place of each span. The spans are merged.
func (s spans) masked(text string) string {
	if len(s) == 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + len(s)*len(Mark))
	from := 0
	for _, one := range s {
		b.WriteString(text[from:one.start])
		b.WriteString(Mark)
		from = one.end
	}
	b.WriteString(text[from:])
	return b.String()
}

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
		for start >= 5 && cut-start < 32 && text[start-1] == ' ' && isDigits(text[start-5:start-1]) &&
			isDigit(text[start]) {
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
