package browser

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Browser is a running browser. Its test ends it.
type Browser struct {
	ctx context.Context
	axe string
}

// Start starts a browser, which ends with the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	path, axe := services.Chromium(t), services.Axe(t)
	said := new(output)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.CombinedOutput(said),
		// Without zygotes every process is a child of the browser, which waits for them: none is left to an init that does
		// not.
		chromedp.Flag("no-zygote", true), chromedp.Flag("disable-crash-reporter", true),
		chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-domain-reliability", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		testkit.Within(t, "the browser ends", func() {
			if err := chromedp.Cancel(ctx); err != nil {
				t.Errorf("end the browser: %v", err)
			}
			cancel()
		})
	})
	var err error
	testkit.Within(t, "the browser starts", func() { err = chromedp.Do(ctx) })
	if err != nil {
		t.Fatalf("start %s: %v\n%s", path, err, said)
	}
	return &Browser{ctx: ctx, axe: axe}
}

// output keeps what the browser says, for the error of a start that failed.
type output struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said.Len() > 64<<10 {
		o.said.Reset()
	}
	return o.said.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said.String()
}
