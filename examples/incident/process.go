package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
)

// process is the service in a process of its own.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan error
}

// start runs this very program with the flag -serve.
func start(s crash.Setting) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self, "-serve"), ended: make(chan error, 1)}
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	_, err = p.stdin.Write(append(line, '\n'))
	return p, err
}

// kill is SIGKILL: nothing is finished, committed or given back.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the service: %w", err)
	}
	<-p.ended
	_ = p.stdin.Close()
	return nil
}

// stop lets the service finish what it is at.
func (p *process) stop() error {
	_ = p.stdin.Close()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Minute):
		return errors.Join(errors.New("the service does not end"), p.kill())
	}
}
