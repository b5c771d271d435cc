package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
)

// process is a consumer in a process of its own.
type process struct {
	cmd *exec.Cmd
	// up is closed when its handlers run, and ended when it has ended, with exit as its status: -1 for a signal.
	up, ended chan struct{}
	exit      int
	// retired says that its end is meant: nothing starts it again.
	retired atomic.Bool
}

// start runs this very program with the flag -consume. What it says goes to a file.
func start(s setting, log string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self, "-consume"), up: make(chan struct{}), ended: make(chan struct{})}
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the process has its own
	p.cmd.Stderr = file
	stdin, err := p.cmd.StdinPipe() // open until this process ends, and so says to the other that it has
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for lines, said := bufio.NewScanner(stdout), false; lines.Scan(); {
			if lines.Text() == "up" && !said {
				said = true
				close(p.up)
			}
		}
		_ = p.cmd.Wait()
		p.exit = p.cmd.ProcessState.ExitCode()
		close(p.ended)
	}()
	if _, err := stdin.Write(append(line, '\n')); err != nil && !errors.Is(err, syscall.EPIPE) {
		return nil, errors.Join(err, p.signal(syscall.SIGKILL))
	}
	return p, nil
}

// signal is no error for a process that has ended.
func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s to consumer %d: %w", s, p.cmd.Process.Pid, err)
	}
	return nil
}
