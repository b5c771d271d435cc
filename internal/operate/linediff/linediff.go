// Package linediff compares two texts line by line, for people who decide whether a change is what they meant.
package linediff

import "strings"

// Line is a line of a comparison.
type Line struct {
	// Kind says what becomes of the line.
	Kind Kind
	// Text is the line as it is shown. Of Skipped it is empty.
	Text string
	// Lines is the number of lines that Skipped stands for.
	Lines int
}

// Kind is what becomes of a line.
type Kind string

const (
	// Same is a line that both texts have.
	Same Kind = "same"
	// Gone is a line of the first text alone.
	Gone Kind = "gone"
	// Come is a line of the second text alone.
	Come Kind = "come"
	// Skipped stands for lines that both texts have, far from any change.
	Skipped Kind = "skipped"
)

// Text is a text and how it is shown, such as with masks. If they have different numbers of lines, what is shown is
// compared.
type Text struct{ Is, Shown string }

const (
	around = 3 // lines beside a change that are shown
	// of the table of the comparison: beyond it all lines between the first and the last change count as changed
	maxCells = 250000
)

type pair struct{ is, shown string }

func (t Text) lines() (all []pair) {
	is, shown := split(t.Is), split(t.Shown)
	if len(is) != len(shown) {
		is = shown
	}
	for i := range is {
		all = append(all, pair{is[i], shown[i]})
	}
	return all
}

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// Compare returns what becomes of the lines. It is empty if the texts are the same. A change that is masked is seen as
// a change.
func Compare(before, after Text) []Line {
	a, b := before.lines(), after.lines()
	head, tail := 0, 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	if head == len(a) && head == len(b) {
		return nil
	}
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	lines := added(nil, Same, a[:head])
	lines = middle(lines, a[head:len(a)-tail], b[head:len(b)-tail])
	return folded(added(lines, Same, a[len(a)-tail:]))
}

func added(to []Line, kind Kind, lines []pair) []Line {
	for _, l := range lines {
		to = append(to, Line{Kind: kind, Text: l.shown})
	}
	return to
}

// middle compares by the longest common sequence of lines. Of many lines all count as changed.
func middle(lines []Line, a, b []pair) []Line {
	if len(a)*len(b) <= maxCells {
		longest := make([][]int, len(a)+1)
		longest[len(a)] = make([]int, len(b)+1)
		for i := len(a) - 1; i >= 0; i-- {
			longest[i] = make([]int, len(b)+1)
			for j := len(b) - 1; j >= 0; j-- {
				if longest[i][j] = max(longest[i+1][j], longest[i][j+1]); a[i] == b[j] {
					longest[i][j] = longest[i+1][j+1] + 1
				}
			}
		}
		for i, j := 0, 0; len(a) > 0 && len(b) > 0; {
			switch {
			case a[0] == b[0]:
				lines = added(lines, Same, a[:1])
				i, j, a, b = i+1, j+1, a[1:], b[1:]
			case longest[i+1][j] >= longest[i][j+1]:
				lines = added(lines, Gone, a[:1])
				i, a = i+1, a[1:]
			default:
				lines = added(lines, Come, b[:1])
				j, b = j+1, b[1:]
			}
		}
	}
	return added(added(lines, Gone, a), Come, b)
}

// folded takes out what is far from any change.
func folded(lines []Line) (short []Line) {
	near := make([]bool, len(lines))
	for i, l := range lines {
		if l.Kind == Same {
			continue
		}
		for j := max(0, i-around); j <= min(len(lines)-1, i+around); j++ {
			near[j] = true
		}
	}
	for i, l := range lines {
		switch {
		case near[i]:
			short = append(short, l)
		case len(short) > 0 && short[len(short)-1].Kind == Skipped:
			short[len(short)-1].Lines++
		default:
			short = append(short, Line{Kind: Skipped, Lines: 1})
		}
	}
	return short
}
