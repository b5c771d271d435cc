package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// childCommand returns what makes the command of a consuming process: this very test, alone.
func childCommand(t *testing.T, target Target) func() (*exec.Cmd, error) {
	program := sync.OnceValues(func() (string, error) { return childProgram(t) })
	return func() (*exec.Cmd, error) {
		path, err := program()
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(path, "-test.run", onlyThis(t.Name()), "-test.timeout", "10m")
		cmd.Env = append(os.Environ(), ChildVariable+"="+childName(t, target))
		return cmd, nil
	}
}

// onlyThis is the pattern of a test's name, level by level.
func onlyThis(name string) string {
	levels := strings.Split(name, "/")
	for i, level := range levels {
		levels[i] = "^" + regexp.QuoteMeta(level) + "$"
	}
	return strings.Join(levels, "/")
}

// childProgram is the program that runs, or, where that one was built with -race, the same without: clients may have
// races of their own when they dial again, as watermill-amqp has, and those are not what is tested.
func childProgram(t *testing.T) (string, error) {
	built := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			built[s.Key] = s.Value
		}
	}
	if built["-race"] != "true" {
		return os.Executable()
	}
	path := filepath.Join(t.TempDir(), "unraced.test")
	build := exec.Command("go", "test", "-c", "-race=false", "-tags", built["-tags"], "-o", path, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the test without -race: %w\n%s", err, out)
	}
	return path, nil
}
