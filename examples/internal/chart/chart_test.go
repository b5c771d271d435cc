package chart

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Whatever the numbers, a bar and a history have the cells that they may have.
func TestCells(t *testing.T) {
	for _, c := range []struct {
		n    float64
		want int
	}{{-1, 0}, {0, 0}, {0.001, 1}, {50, 20}, {100, 40}, {1e12, 40}} {
		if got := len([]rune(Bar(c.n, 100))); got != c.want {
			t.Errorf("%v: %d cells, want %d", c.n, got, c.want)
		}
	}
	if got := History([]float64{0, 1, 50, 100, 1e6}, 100); got != " ▁▄██" {
		t.Errorf("%q", got)
	}
	if got := History(slices.Repeat([]float64{1}, 1000), 1); len([]rune(got)) != Columns {
		t.Errorf("%d columns", len([]rune(got)))
	}
}

// A picture is drawn over the one before.
func TestPicture(t *testing.T) {
	out := testkit.Must(os.Create(filepath.Join(t.TempDir(), "screen")))
	defer out.Close()
	p := &Picture{Out: out}
	p.Draw([]string{"a", "b"})
	p.Draw([]string{"c"})
	text, err := os.ReadFile(out.Name())
	if want := "\ra\x1b[K\n\rb\x1b[K\n\x1b[2A\rc\x1b[K\n"; err != nil || string(text) != want {
		t.Errorf("%q, %v", text, err)
	}
}
