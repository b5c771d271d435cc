package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Process is a consumer in a process of its own.
type Process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan error
}

// Start runs this very program with a flag that makes it the consumer.
func Start(s Setting, flag string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(self, flag), ended: make(chan error, 1)}
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

// begin starts the consumer of the story.
func (s *history) begin() (err error) {
	s.consumer, err = Start(s.Setting, "-consume")
	return err
}

// end stops it, if there is one.
func (s *history) end() error {
	p := s.consumer
	s.consumer = nil
	if p == nil {
		return nil
	}
	return p.Stop()
}

// kill kills it, and one that is at rest is woken for it.
func (s *history) kill() error {
	if s.consumer == nil {
		if err := s.begin(); err != nil {
			return err
		}
	}
	p := s.consumer
	s.consumer = nil
	return p.Kill()
}

// alive returns an error if the process ended without being asked to.
func (s *history) alive() error {
	if s.consumer == nil {
		return nil
	}
	return s.consumer.alive()
}

// Kill is SIGKILL: nothing is finished, committed or requeued.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the consumer: %w", err)
	}
	<-p.ended
	_ = p.stdin.Close() // Wait has closed it already
	return nil
}

// Stop lets the consumer finish what it is at.
func (p *Process) Stop() error {
	_ = p.stdin.Close()
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("the consumer: %w", err)
		}
		return nil
	case <-time.After(time.Minute):
		return errors.Join(errors.New("the consumer does not end"), p.Kill())
	}
}

func (p *Process) alive() error {
	select {
	case err := <-p.ended:
		p.ended <- err
		return fmt.Errorf("the consumer ended by itself: %w", errors.Join(err, io.ErrUnexpectedEOF))
	default:
		return nil
	}
}
