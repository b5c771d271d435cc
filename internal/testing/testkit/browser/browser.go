package browser

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Browser is a running browser. Its test ends it.
type Browser struct {
	pipe *pipe
	axe  string
}

var flags = []string{
	"--remote-debugging-pipe", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--mute-audio", "--no-first-run",
	"--no-default-browser-check", "--password-store=basic", "--use-mock-keychain", "--disable-extensions", "--disable-sync",
	"--disable-default-apps", "--disable-dev-shm-usage", "--disable-hang-monitor", "--disable-prompt-on-repost", "--disable-popup-blocking",
	"--disable-background-networking", "--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows",
	"--disable-renderer-backgrounding", "--disable-client-side-phishing-detection", "--disable-component-update",
	"--disable-domain-reliability", "--disable-crash-reporter", "--disable-breakpad", "--metrics-recording-only",
	// Without zygotes every process is a child of the browser, which waits for them: none is left to an init that does
	// not.
	"--no-zygote",
}

// Start starts a browser, which ends with the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	path, axe := services.Chromium(t), services.Axe(t)
	profile, err := os.MkdirTemp("", "spillway-browser-")
	if err != nil {
		t.Fatal(err)
	}
	reads, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	said := new(output)
	cmd := exec.Command(path, append(flags, "--user-data-dir="+profile, "about:blank")...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = said, said, []*os.File{reads, writes}
	err = errors.Join(cmd.Start(), reads.Close(), writes.Close())
	if err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	b := &Browser{newPipe(in, out), axe}
	t.Cleanup(func() {
		testkit.Within(t, "the browser ends", func() {
			if err := errors.Join(b.pipe.call("", "Browser.close", nil, nil), cmd.Wait(), in.Close()); err != nil {
				t.Errorf("end the browser: %v\n%s", err, said)
			}
		})
		b.pipe.wait()
		_ = os.RemoveAll(profile)
	})
	testkit.Within(t, "the browser starts", func() { err = b.pipe.call("", "Browser.getVersion", nil, nil) })
	if err != nil {
		t.Fatalf("start %s: %v\n%s", path, err, said)
	}
	return b
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
