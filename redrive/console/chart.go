package console

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
)

const (
	chartWidth, chartHeight = 600, 120
	chartGap                = 1
)

// bars draws stacked bars: one for each column, in which each series has a part. All series have the same length.
// Negative numbers count as 0. The title and the description are for those who do not see the chart.
func bars(id, title, description string, series ...[]int) template.HTML {
	sums := sumsOf(series)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-labelledby="%[3]s-title %[3]s-desc" preserveAspectRatio="none">`,
		chartWidth, chartHeight, template.HTMLEscapeString(id))
	fmt.Fprintf(&b, `<title id="%[1]s-title">%[2]s</title><desc id="%[1]s-desc">%[3]s</desc>`,
		template.HTMLEscapeString(id), template.HTMLEscapeString(title), template.HTMLEscapeString(description))
	for _, line := range []int{0, chartHeight / 2, chartHeight} {
		fmt.Fprintf(&b, `<path class="grid" d="M0 %d H%d"/>`, line, chartWidth)
	}
	return drawn(&b, chartWidth, chartHeight, chartGap, sums, series)
}

// spark draws one series without any words: a label stands beside it.
func spark(numbers []int) template.HTML {
	const wide, tall = 120, 20
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %d %d" aria-hidden="true" preserveAspectRatio="none"><path class="grid" d="M0 %d H%d"/>`, wide, tall, tall, wide)
	return drawn(&b, wide, tall, 0.4, numbers, [][]int{numbers})
}

// drawn draws the columns of series, and ends the chart.
func drawn(b *strings.Builder, wide, high, gap float64, sums []int, series [][]int) template.HTML {
	top, step := max(1, slices.Max(append([]int{0}, sums...))), wide/float64(max(1, len(sums)))
	for column := range sums {
		bottom := high
		for s, numbers := range series {
			if n := numbers[column]; n > 0 {
				tall := min(max(1, float64(n)/float64(top)*high), bottom) // one letter among a million is seen
				bottom -= tall
				fmt.Fprintf(b, `<rect class="s%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, s, float64(column)*step, bottom,
					step-gap, tall)
			}
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func sumsOf(series [][]int) (sums []int) {
	for _, numbers := range series {
		if sums == nil {
			sums = make([]int, len(numbers))
		}
		for i, n := range numbers {
			sums[i] += max(0, n)
		}
	}
	return sums
}
