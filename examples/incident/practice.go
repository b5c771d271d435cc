package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
)

// practise leaves the incident to the person at the terminal. A line of in deploys the fix; the end of in, or of ctx,
// ends it.
func (s *session) practise(ctx context.Context, in io.Reader) error {
	fmt.Fprintf(s.terminal.out, "\nThe alert: webhooks are set aside. docs/incidents.md is the runbook. In another terminal:\n\n "+
		" export PATH=%s:$PATH\n", filepath.Dir(s.terminal.binary))
	for _, variable := range s.terminal.env {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "SPILLWAY_") {
			fmt.Fprintf(s.terminal.out, "  export %s='%s'\n", name, value)
		}
	}
	fmt.Fprintln(s.terminal.out, "\nEnter deploys the fix of the service's bugs. Ctrl-D ends the practice, and counts what "+
		"became of each message.")
	lines := make(chan bool)
	go func() { // it may wait for a line for ever, and ends with the program
		for scanner := bufio.NewScanner(in); scanner.Scan(); {
			lines <- true
		}
		close(lines)
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, more := <-lines:
			if !more {
				return nil
			}
			if err := s.deploy(); err != nil {
				return err
			}
		}
	}
}

// deploy replaces the service by one without its bugs.
func (s *session) deploy() error {
	fmt.Fprintln(s.terminal.out, "\n# The fix is deployed.")
	if err := s.serving.Stop(); err != nil {
		return fmt.Errorf("stop the service: %w", err)
	}
	s.setting.Fixed = true
	serving, err := crash.Start(s.setting, "-serve")
	if err == nil {
		s.serving = serving
	}
	return err
}
