// Package modules_test builds each module, and modules of users, as they are published: without the workspace, from a
// file-system proxy that is made of the tree.
package modules_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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

// made makes the proxy once for all tests.
var made sync.Once

func publish(t *testing.T) *published {
	t.Helper()
	if os.Getenv("SPILLWAY_EMBEDDED") != "" {
		t.Skip("SPILLWAY_EMBEDDED is set: a module's own versions may have to be downloaded")
	}
	known := testkit.Must(exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output())
	fields := strings.Fields(string(known))
	folder := testkit.Must(os.UserCacheDir())
	p := &published{t: t, cache: filepath.Join(folder, "spillway-modules")}
	proxy := filepath.Join(p.cache, "proxy")
	made.Do(func() {
		for _, stale := range []string{filepath.Dir(own), "cache/download/" + filepath.Dir(own), "proxy"} { // of earlier trees
			testkit.NoError(t, os.RemoveAll(filepath.Join(p.cache, stale)))
		}
		if out, err := exec.Command("go", "run", "./proxy", "-tree", root, "-out", proxy, "-version", version).CombinedOutput(); err != nil {
			t.Fatalf("make the proxy: %v\n%s", err, out)
		}
	})
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

func read(path string) string { return string(testkit.Must(os.ReadFile(path))) }

// compiles returns the versions of all that a module compiles, with its tests, by itself or in the workspace.
func (p *published) compiles(folder string, env []string, flags ...string) string {
	p.t.Helper()
	const own = `{{with .Module}}{{if not (eq .Version "" "` + version + `")}}{{.Path}} {{.Version}}{{end}}{{end}}`
	in := &published{p.t, p.cache, env}
	versions := strings.Split(in.do(folder, append(append([]string{"list"}, flags...), "-deps", "-test", "-f", own, "./...")...), "\n")
	slices.Sort(versions)
	return strings.Join(slices.Compact(versions), "\n")
}

// Each module builds and is vetted by itself at its own versions, with its tests, and its go.mod is tidy. Where it
// compiles the versions of the workspace, make vet has vetted the same. The command is installed as a user installs it.
func TestModules(t *testing.T) {
	p := publish(t)
	for _, folder := range []string{".", "cmd/redrive", "observe/prom", "observe/telemetry", "examples", "lab"} {
		t.Run(folder, func(t *testing.T) {
			p := &published{t, p.cache, p.env}
			at := filepath.Join(root, folder)
			file := filepath.Join(t.TempDir(), "go.mod")
			want := read(filepath.Join(at, "go.mod"))
			p.write(file, want)
			p.write(strings.TrimSuffix(file, "mod")+"sum", read(filepath.Join(at, "go.sum")))
			p.do(at, "mod", "tidy", "-modfile="+file)
			if got := read(file); got != want {
				t.Errorf("go.mod is not tidy: it becomes\n%s", got)
			}
			if p.compiles(at, p.env, "-modfile="+file) != p.compiles(at, os.Environ()) {
				p.do(at, "vet", "-modfile="+file, "./...")
			}
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

// users are programs of others, with versions of their own that are older than the newest. Each keeps them.
var users = map[string]struct {
	requires map[string]string
	imports  []string // to be compiled
}{
	"the front door": {
		map[string]string{
			"github.com/jackc/pgx/v5": "v5.9.2", "go.opentelemetry.io/otel": "v1.34.0", "github.com/redis/go-redis/v9": "v9.7.0",
			"github.com/prometheus/client_golang": "v1.23.0", "github.com/go-sql-driver/mysql": "v1.8.1", "github.com/lib/pq": "v1.10.9",
		},
		[]string{
			own, own + "/redrive/console", own + "/observe/notify", own + "/idempotency/pgxstore",
			"github.com/jackc/pgx/v5/stdlib", "go.opentelemetry.io/otel", "github.com/redis/go-redis/v9",
			"github.com/prometheus/client_golang/prometheus", "github.com/go-sql-driver/mysql", "github.com/lib/pq",
		},
	},
	"an adapter": {
		map[string]string{"github.com/IBM/sarama": "v1.43.3", "github.com/jackc/pgx/v5": "v5.9.0", "go.opentelemetry.io/otel": "v1.29.0"},
		[]string{own, own + "/pubsub/wmkafka", "github.com/IBM/sarama", "github.com/jackc/pgx/v5", "go.opentelemetry.io/otel"},
	},
	"telemetry and prom": {
		map[string]string{
			"go.opentelemetry.io/otel": "v1.34.0", "go.opentelemetry.io/otel/sdk": "v1.34.0",
			"github.com/jackc/pgx/v5": "v5.9.2", "github.com/redis/go-redis/v9": "v9.7.0",
			"github.com/prometheus/client_golang": "v1.23.0",
		},
		[]string{
			own, own + "/observe/telemetry", own + "/observe/prom", "go.opentelemetry.io/otel/sdk/trace",
			"github.com/jackc/pgx/v5", "github.com/redis/go-redis/v9", "github.com/prometheus/client_golang/prometheus",
		},
	},
}

// A user's own versions stay, whatever part of Spillway is imported beside them.
func TestUsersKeepTheirVersions(t *testing.T) {
	p := publish(t)
	for name, user := range users {
		t.Run(name, func(t *testing.T) {
			p := &published{t, p.cache, p.env}
			folder := t.TempDir()
			file := "module example.com/user\n\ngo 1.25.0\n\nrequire " + own + " " + version + "\n"
			for path, v := range user.requires {
				file += "require " + path + " " + v + "\n"
			}
			source := "package user\n\nimport (\n" // no program: what is compiled need not be linked
			for _, path := range user.imports {
				source += fmt.Sprintf("\t_ %q\n", path)
				for _, nested := range []string{"/observe/prom", "/observe/telemetry"} {
					if path == own+nested {
						file += "require " + path + " " + version + "\n"
					}
				}
			}
			p.write(filepath.Join(folder, "go.mod"), file)
			p.write(filepath.Join(folder, "user.go"), source+")\n")
			p.do(folder, "mod", "tidy")
			p.do(folder, "build", ".")
			for path, want := range user.requires {
				if got := strings.TrimSpace(p.do(folder, "list", "-m", "-f", "{{.Version}}", path)); got != want {
					t.Errorf("%s becomes %s, and the user had %s", path, got, want)
				}
			}
		})
	}
}
