package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/creack/pty"
)

// columns is how wide the terminal of the session is.
const columns = 112

// terminal runs the command redrive as a person does.
type terminal struct {
	binary string
	env    []string
	out    io.Writer
}

// step is what was typed, and what was seen.
type step struct {
	name, typed, seen string
	code              int
}

// build builds the command.
func build(folder string) (string, error) {
	binary := filepath.Join(folder, "redrive")
	out, err := exec.Command("go", "build", "-o", binary,
		"github.com/watermill-spillway/spillway/cmd/redrive").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build redrive: %w: %s", err, out)
	}
	return binary, nil
}

// run types a command and waits for its end. during, if not nil, is called while it runs.
func (t *terminal) run(name string, during func() error, args ...string) (step, error) {
	s := step{name: name, typed: "redrive " + shown(args)}
	fmt.Fprintf(t.out, "\n$ %s\n", s.typed)
	cmd := exec.Command(t.binary, args...)
	cmd.Env = t.env
	screen, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: columns})
	if err != nil {
		return s, err
	}
	defer screen.Close()
	meanwhile := make(chan error, 1)
	go func() {
		if during == nil {
			meanwhile <- nil
			return
		}
		meanwhile <- during()
	}()
	raw, err := io.ReadAll(screen)
	if errors.Is(err, syscall.EIO) { // a terminal on Linux ends so
		err = nil
	}
	var exit *exec.ExitError
	if waited := cmd.Wait(); errors.As(waited, &exit) {
		s.code = exit.ExitCode()
	} else {
		err = errors.Join(err, waited)
	}
	s.seen = settled(string(raw))
	fmt.Fprintln(t.out, s.seen)
	return s, errors.Join(err, <-meanwhile)
}

// ok is run for a command that must end with a code.
func (t *terminal) ok(code int, name string, args ...string) (step, error) {
	return t.meanwhile(code, name, nil, args...)
}

func (t *terminal) meanwhile(code int, name string, during func() error, args ...string) (step, error) {
	s, err := t.run(name, during, args...)
	if err == nil && s.code != code {
		err = fmt.Errorf("%s ended with exit code %d, and %d was expected: %s", s.typed, s.code, code, s.seen)
	}
	return s, err
}

var erase = regexp.MustCompile("\x1b\\[[0-9;]*[a-zA-Z]")

// settled is what a terminal shows in the end: a line that was drawn again and again is there once.
func settled(raw string) string {
	lines := strings.Split(strings.ReplaceAll(raw, "\r\n", "\n"), "\n")
	for i, line := range lines {
		if at := strings.LastIndex(line, "\r"); at >= 0 {
			line = line[at+1:]
		}
		lines[i] = strings.TrimRight(erase.ReplaceAllString(line, ""), " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// shown is a command line as a person types it.
func shown(args []string) string {
	typed := make([]string, len(args))
	for i, arg := range args {
		if typed[i] = arg; strings.ContainsAny(arg, ` {}"[]`) {
			typed[i] = "'" + arg + "'"
		}
	}
	return strings.Join(typed, " ")
}

// environment is that of the person on call.
func environment(db, broker string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "TERM=xterm", "NO_COLOR=1",
		"SPILLWAY_DB=" + db, "SPILLWAY_SERVICE=" + service, "SPILLWAY_BROKER=" + broker, "SPILLWAY_BY=ann",
	}
}
