// Package modules_test builds each module, and modules of users, as they are published: without the workspace, from a
// file-system proxy that is made of the tree.
package modules_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

const (
	root    = "../../.."
	own     = "github.com/watermill-spillway/spillway"
	version = "v0.1.0"
)

// published is the tree as a proxy publishes it, with a module cache of its own: versions of this tree enter no other
// cache.
type published struct {
	t     *testing.T
	cache string
	env   []string
}

func publish(t *testing.T) *published {
	t.Helper()
	if os.Getenv("SPILLWAY_EMBEDDED") != "" {
		t.Skip("SPILLWAY_EMBEDDED is set: a module's own versions may have to be downloaded")
	}
	proxy := t.TempDir()
	if out, err := exec.Command("go", "run", "./proxy", "-tree", root, "-out", proxy, "-version", version).CombinedOutput(); err != nil {
		t.Fatalf("make the proxy: %v\n%s", err, out)
	}
	known := testkit.Must(exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output())
	fields := strings.Fields(string(known))
	folder := testkit.Must(os.UserCacheDir())
	p := &published{t: t, cache: filepath.Join(folder, "spillway-modules")}
	for _, stale := range []string{filepath.Dir(own), "cache/download/" + filepath.Dir(own)} { // of earlier trees
		testkit.NoError(t, os.RemoveAll(filepath.Join(p.cache, stale)))
	}
	// goindex: the go command keeps what it read of a version, and believes that a version never changes.
	p.env = append(os.Environ(), "GODEBUG=goindex=0", "GOWORK=off", "GOFLAGS=-mod=mod -trimpath -modcacherw -buildvcs=false", "GOSUMDB=off", "GOTOOLCHAIN=local",
		"GOMODCACHE="+p.cache, "GOPROXY=file://"+proxy+",file://"+filepath.Join(fields[0], "cache", "download")+","+fields[1])
	return p
}

// do runs the go command in a folder, and returns what it prints.
func (p *published) do(folder string, args ...string) string {
	p.t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = folder, p.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Errorf("go %s in %s: %v\n%s", strings.Join(args, " "), folder, err, out)
	}
	return string(out)
}

func (p *published) write(path, text string) {
	p.t.Helper()
	testkit.NoError(p.t, os.WriteFile(path, []byte(text), 0o644))
}

func (p *published) read(path string) string {
	p.t.Helper()
	text := testkit.Must(os.ReadFile(path))
	return string(text)
}
