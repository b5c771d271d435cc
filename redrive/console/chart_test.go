package console

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Whatever the numbers are, a chart is whole, and its bars stay within it.
func TestBars(t *testing.T) {
	for _, series := range [][][]int{
		nil, {}, {{}}, {{0, 0}}, {{-5, 3}}, {{math.MaxInt / 4, 1}, {1, math.MaxInt / 4}}, {{1}, {1}, {1}}, {make([]int, 60), make([]int, 60)},
	} {
		for _, svg := range []string{string(bars(`a"b`, `<b>`, `&`, series...)), string(spark(append([]int{}, flat(series)...)))} {
			decoder := xml.NewDecoder(strings.NewReader(svg))
			for {
				token, err := decoder.Token()
				if err == io.EOF {
					break
				}
				testkit.Require(t, err == nil, "%v: %v: %s", series, err, svg)
				if element, ok := token.(xml.StartElement); ok && element.Name.Local == "rect" {
					for _, a := range element.Attr {
						var n float64
						if _, err := fmt.Sscan(a.Value, &n); a.Name.Local != "class" && (err != nil || n < 0 || n > 600) {
							t.Errorf("%v: %s=%s", series, a.Name.Local, a.Value)
						}
					}
				}
			}
		}
	}
}

func flat(series [][]int) (all []int) {
	for _, numbers := range series {
		all = append(all, numbers...)
	}
	return all
}
