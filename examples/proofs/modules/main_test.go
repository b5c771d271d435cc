// Package modules_test builds each module, and modules of users, as they are published: without the workspace, from a
// file-system proxy that is made of the tree.
package modules_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	known, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(known))
	folder, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	p := &published{t: t, cache: filepath.Join(folder, "spillway-modules")}
	for _, stale := range []string{filepath.Dir(own), "cache/download/" + filepath.Dir(own)} { // of earlier trees
		if err := os.RemoveAll(filepath.Join(p.cache, stale)); err != nil {
			t.Fatal(err)
		}
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
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *published) read(path string) string {
	p.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}
