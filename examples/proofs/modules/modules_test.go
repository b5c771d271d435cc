package modules_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each module builds and is vetted by itself at its own versions, with its tests, and its go.mod is tidy. The command
// is installed as a user installs it.
func TestModules(t *testing.T) {
	p := publish(t)
	for _, folder := range []string{".", "cmd/redrive", "observe/prom", "observe/telemetry", "examples"} {
		t.Run(folder, func(t *testing.T) {
			p := &published{t, p.cache, p.env}
			at := filepath.Join(root, folder)
			file := filepath.Join(t.TempDir(), "go.mod")
			want := p.read(filepath.Join(at, "go.mod"))
			p.write(file, want)
			p.write(strings.TrimSuffix(file, "mod")+"sum", p.read(filepath.Join(at, "go.sum")))
			p.do(at, "mod", "tidy", "-modfile="+file)
			if got := p.read(file); got != want {
				t.Errorf("go.mod is not tidy: it becomes\n%s", got)
			}
			p.do(at, "vet", "-modfile="+file, "./...")
		})
	}
	t.Run("go install", func(t *testing.T) {
		p := &published{t, p.cache, append(p.env, "GOBIN="+t.TempDir())}
		p.do(t.TempDir(), "install", own+"/cmd/redrive@"+version)
		bin := strings.TrimPrefix(p.env[len(p.env)-1], "GOBIN=")
		if out, err := exec.Command(filepath.Join(bin, "redrive"), "--help").CombinedOutput(); err != nil || !strings.Contains(string(out), "redrive") {
			t.Errorf("%v: %s", err, out)
		}
	})
}
