package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// slot is the place of one consumer: a process that is started again when it ends, with connections of its own.
type slot struct {
	campaign *campaign
	number   int
	setting  setting
	database *proxy
	broker   *proxy // that of the database, on tables

	busy    sync.Mutex // a fault is at the process
	mu      sync.Mutex
	current *process
	started int
	closed  bool
}

// begin starts a process and sees to it that there is always one.
func (s *slot) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = false
	return s.startLocked()
}

func (s *slot) startLocked() error {
	s.started++
	p, err := start(s.setting, filepath.Join(s.campaign.folder,
		fmt.Sprintf("consumer%d-%03d.log", s.number+1, s.started)))
	if err != nil {
		return err
	}
	s.current = p
	s.campaign.children.Add(1)
	go func() {
		defer s.campaign.children.Done()
		s.supervise(p)
	}()
	return nil
}

// supervise starts the next process when p has ended unasked, after a while, as supervisors do.
func (s *slot) supervise(p *process) {
	<-p.ended
	if p.retired.Load() {
		return
	}
	switch p.exit {
	case deadlyExit:
		s.campaign.count("deadly")
	case -1: // a signal: it is counted where it was sent
	default:
		s.campaign.count("ended")
	}
	time.Sleep(300 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.current != p {
		return
	}
	if err := s.startLocked(); err != nil {
		s.campaign.tell("start consumer %d: %v", s.number+1, err)
	}
}

// untilUp waits for the handlers of the first process, or says why there are none.
func (s *slot) untilUp(ctx context.Context) error {
	for deadline := time.After(patience); ; {
		p := s.process()
		select {
		case <-p.up:
			return nil
		case <-p.ended: // it is started again: a server may be busy
			wait(ctx, 100*time.Millisecond)
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("consumer %d did not start within %s: see its log", s.number+1, patience)
		}
	}
}

func (s *slot) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// deploy starts a new process, and then ends the old one in order.
func (s *slot) deploy(ctx context.Context) error {
	s.mu.Lock()
	old := s.current
	old.retired.Store(true)
	err := s.startLocked()
	next := s.current
	s.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-next.up:
	case <-next.ended:
	case <-ctx.Done():
	case <-time.After(10 * time.Second): // as long as a readiness probe has patience; a server may be down
	}
	return s.end(old)
}

// longestEnd is longer than a router's CloseTimeout and the closes of its adapters.
const longestEnd = 60 * time.Second

// end is SIGTERM, and after a minute SIGKILL.
func (s *slot) end(p *process) error {
	p.retired.Store(true)
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
		if p.exit > 0 && p.exit != deadlyExit {
			s.campaign.count("unclean")
		}
		return nil
	case <-time.After(longestEnd):
		s.campaign.count("hung")
		s.campaign.tell("consumer %d did not end within %s of SIGTERM", s.number+1, longestEnd)
		err := p.signal(syscall.SIGKILL)
		<-p.ended
		return err
	}
}

// stop ends the process in order, and starts no other.
func (s *slot) stop() error {
	s.mu.Lock()
	s.closed = true
	p := s.current
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	return s.end(p)
}

// kill ends whatever there is.
func (s *slot) kill() {
	s.mu.Lock()
	s.closed = true
	p := s.current
	s.mu.Unlock()
	if p != nil {
		p.retired.Store(true)
		_ = p.signal(syscall.SIGKILL)
	}
}
