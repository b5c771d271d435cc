package conformance

import (
	"errors"
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
	unraced.Lock()
	defer unraced.Unlock()
	if unraced.users == 0 {
		folder, err := os.MkdirTemp("", "conformance")
		if err != nil {
			return "", err
		}
		build := exec.Command("go", "test", "-c", "-race=false", "-vet=off", "-tags", built["-tags"], "-o",
			filepath.Join(folder, "unraced.test"), ".")
		if out, err := build.CombinedOutput(); err != nil {
			return "", errors.Join(fmt.Errorf("build the test without -race: %w\n%s", err, out), os.RemoveAll(folder))
		}
		unraced.folder = folder
	}
	unraced.users++
	t.Cleanup(func() {
		unraced.Lock()
		defer unraced.Unlock()
		if unraced.users--; unraced.users > 0 {
			return
		}
		if err := os.RemoveAll(unraced.folder); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(unraced.folder, "unraced.test"), nil
}

// unraced is the folder of the program without the race detector. Targets that run at the same time share it: its
// linking takes long.
var unraced struct {
	sync.Mutex
	folder string
	users  int
}
