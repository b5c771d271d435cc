package browser

import "fmt"

// Axe returns what axe-core finds wrong on the page, one line for each rule and element: nothing is the good answer.
// The page must have script.
func (p *Page) Axe() []string {
	p.t.Helper()
	Eval[any](p, p.axe+";undefined")
	type violation struct {
		ID, Impact, Help string
		Nodes            []struct {
			HTML           string
			FailureSummary string
		}
	}
	found := Eval[[]violation](p, `axe.run(document, {resultTypes: ["violations"], iframes: false}).then(r => r.violations)`)
	var lines []string
	for _, v := range found {
		for _, node := range v.Nodes {
			lines = append(lines, fmt.Sprintf("%s (%s): %s: %.300s: %.300s", v.ID, v.Impact, v.Help, node.HTML,
				node.FailureSummary))
		}
	}
	return lines
}
