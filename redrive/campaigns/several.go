package campaigns

import "math/bits"

// several are placeholders for n values that padded pads. Statements of few lengths are prepared once each.
func several(n int) string { return marks(paddedTo(n)) }

func paddedTo(n int) int { return 1 << bits.Len(uint(n-1)) }

// padded repeats the last value until there are as many as several has placeholders.
func padded(values []any) []any {
	all := make([]any, paddedTo(len(values)))
	n := copy(all, values)
	for i := n; i < len(all); i++ {
		all[i] = values[n-1]
	}
	return all
}
