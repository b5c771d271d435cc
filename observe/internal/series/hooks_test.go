package series

import (
	"context"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBefore(t *testing.T) {
	var calls []string
	one := func(name string) func(context.Context, int) {
		return func(context.Context, int) { calls = append(calls, name) }
	}
	two := func(name string) func(context.Context, int, error) {
		return func(context.Context, int, error) { calls = append(calls, name) }
	}
	Before(one("ours"), one("theirs"))(t.Context(), 1)
	Before(one("ours alone"), nil)(t.Context(), 1)
	Before2(two("ours"), two("theirs"))(t.Context(), 1, nil)
	Before2(two("ours alone"), nil)(t.Context(), 1, nil)
	if want := []string{"ours", "theirs", "ours alone", "ours", "theirs", "ours alone"}; !slices.Equal(calls, want) {
		t.Errorf("calls %q", calls)
	}
}
