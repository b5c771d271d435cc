package conformance

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// process is a consuming process, as its parent sees it.
type process struct {
	b      *bench
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	events *events
	ended  chan struct{}
	err    error // once it has ended
	killed bool
}

// consumer starts a process that consumes the live topic, and returns when it does.
func (b *bench) consumer(change ...func(*setting)) *process {
	b.Helper()
	p := b.launch(change...)
	p.until("up")
	return p
}

// launch starts one that may end before it consumes.
func (b *bench) launch(change ...func(*setting)) *process {
	b.Helper()
	s := setting{Database: b.path, Topic: b.topic, Outputs: b.outs, Group: b.group}
	for _, f := range change {
		f(&s)
	}
	line, err := json.Marshal(s)
	if err != nil {
		b.Fatal(err)
	}
	cmd, err := b.target.command()
	if err != nil {
		b.Fatal(err)
	}
	p := &process{b: b, cmd: cmd, events: &events{seen: map[string]int{}}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.events, p.events
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() { p.err = cmd.Wait(); close(p.ended) }()
	b.processes = append(b.processes, p)
	b.Cleanup(func() {
		p.kill()
		if b.Failed() {
			b.Logf("process %d said:\n%s", cmd.Process.Pid, p.events)
		}
	})
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		b.Log(err) // it has ended already
	}
	return p
}

// until waits for an event.
func (p *process) until(event ...any) {
	p.b.Helper()
	for deadline := time.Now().Add(patience); !p.said(event...); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.ended:
			p.b.Fatalf("the process ended (%v) before it said %q", p.err, event)
		default:
		}
		if time.Now().After(deadline) {
			p.b.Fatalf("the process did not say %q within %s", event, patience)
		}
	}
}

// said reports whether an event came.
func (p *process) said(event ...any) bool { return p.events.count(event...) > 0 }

// proceed lets it go on from where it halts, and never halt again.
func (p *process) proceed() {
	p.b.Helper()
	if _, err := p.stdin.Write([]byte("go\n")); err != nil {
		p.b.Fatal(err)
	}
}

// kill is SIGKILL: nothing is finished, committed or requeued.
func (p *process) kill() {
	p.killed = true
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.b.Errorf("kill the process: %v", err)
	}
	<-p.ended
}

// idle reports whether it is at nothing.
func (p *process) idle() bool {
	select {
	case <-p.ended:
		return true
	default: // what is settled was received before
		settled := p.events.all("settled")
		return p.events.all("received") == settled
	}
}

// stop lets it finish what it is at, unless it was killed.
func (p *process) stop() {
	p.b.Helper()
	if p.killed {
		return
	}
	_ = p.stdin.Close()
	select {
	case <-p.ended:
		if p.err != nil {
			p.b.Errorf("the process ended with: %v", p.err)
		}
	case <-time.After(patience):
		p.b.Errorf("the process does not end within %s", patience)
		p.kill()
	}
}
