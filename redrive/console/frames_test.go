package console

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

const stack = `runtime.panicIndex(0x3, 0x3)
	/usr/local/go/src/runtime/panic.go:115 +0x74
example.com/shop/billing.(*Invoice).Line(...)
	/home/ann/shop/billing/invoice.go:42
example.com/shop/billing.Handle(0xc000010000)
	/home/ann/shop/billing/handle.go:17 +0x1d
github.com/other/library.Wrap.func1()
	/home/ann/go/pkg/mod/github.com/other/library@v1.2.3/wrap.go:9 +0x2b
github.com/ThreeDotsLabs/watermill/message.(*handler).handleMessage(0xc0, 0xc1)
	/home/ann/watermill/message/router.go:800 +0x1
main.main()
	/home/ann/shop/main.go:8 +0x11
`

// Feature V11: the application's frames stand out, and the others are folded between them.
func TestFold(t *testing.T) {
	trimmed := strings.NewReplacer("/usr/local/go/src/", "", "/home/ann/shop/", "example.com/shop/", "/home/ann/go/pkg/mod/", "").Replace(stack)
	for name, text := range map[string]string{"plain": stack, "trimpath": trimmed, "goroutine": "goroutine 7 [running]:\n" + stack} {
		var shape []string
		for _, g := range foldStack(text) {
			shape = append(shape, fmt.Sprint(g.Own, len(g.Frames)))
		}
		testkit.Equal(t, name, strings.Join(shape, ", "), "false 1, true 2, false 2, true 1")
	}
	f := foldStack(stack)[1].Frames[1]
	testkit.Check(t, f.Call == "example.com/shop/billing.Handle(0xc000010000)" &&
		f.Place == "/home/ann/shop/billing/handle.go:17", "%+v", f)
	got := foldStack(string(debug.Stack()))
	testkit.Check(t, len(got) != 0 && !got[0].Own && got[0].Frames[0].Place != "", "a stack of this process: %+v", got)
}

// What is no stack of Go is shown as it is.
func TestFoldNoStack(t *testing.T) {
	for _, text := range []string{"", "\n\n", "Traceback (most recent call last):", "java.lang.NullPointerException\n  at Shop.main"} {
		testkit.Check(t, foldStack(text) == nil, "%q is folded", text)
	}
	long := strings.Repeat("example.com/shop.Call()\n\t/shop/call.go:1\n", 10_000)
	got := foldStack(long)
	testkit.Check(t, len(got) == 1 && len(got[0].Frames) == 500, "%d groups", len(got))
}
