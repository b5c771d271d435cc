package conformance

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
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

// ChildVariable names the environment variable that the suite sets for the processes it starts. Such a process is the
// same test, in which Run is a consumer. The value names the test and the target.
const ChildVariable = "SPILLWAY_CONFORMANCE_CHILD"

func childName(t *testing.T, target Target) string { return t.Name() + " " + target.Name }

// setting configures a consuming process. It is the first line of the process's standard input.
type setting struct {
	Database              string
	Topic, Outputs, Group string
	// Halt names the step, by the message's id, at which to stop and wait for "go".
	Halt map[string]string
	// Down is a file. While it is there, messages that wait for the downstream fail.
	Down string
	// Wait is the time between two attempts.
	Wait time.Duration
	// Stages are the delays of the handler's stages. They are topics, or with a Store in that.
	Stages []time.Duration
	Store  string
	// Limit sets messages aside that end the process.
	Limit bool
	// Downstream is the address that the handler calls first. With Guarded, a guard of outages stands before the
	// handler.
	Downstream string
	Guarded    bool
	// DeadThrough and SourceThrough are addresses to connect to in the broker's place.
	DeadThrough, SourceThrough string
}

// The delay stores: the one that other rows may have too, whose relays move whatever is due, or a file of the row's
// own.
const (
	storeShared = "shared"
	storeOwn    = "own"
)

// The steps of a message between receipt and ack.
const (
	stepReceived  = "received"  // before anything of ours
	stepHandling  = "handling"  // in the handler, before its write
	stepWritten   = "written"   // in the handler, after it
	stepCommitted = "committed" // the receiver has committed, the outputs are not published
	stepOutput    = "output"    // they are
	stepLetter    = "letter"    // before the dead letter is published
	stepPlaced    = "placed"    // after it
	stepLater     = "later"     // before the message is published to a stage, with a store when it comes out of that
	stepStaged    = "staged"    // after it
)

// consume runs a protected router until standard input ends, which it also does with the parent.
func consume(t *testing.T, target Target) {
	in := bufio.NewReader(os.Stdin)
	c := &consumer{going: make(chan struct{})}
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c.setting)
	}
	if err != nil {
		t.Fatalf("read the setting: %v", err)
	}
	c.b = &bench{T: t, target: target, topic: c.Topic, outs: c.Outputs, group: c.Group, path: c.Database}
	c.b.openEffects()
	stop := c.run()
	c.tell("up")
	// A line says "go", and so does the end.
	_, err = in.ReadBytes('\n')
	close(c.going)
	for err == nil {
		_, err = in.ReadBytes('\n')
	}
	stop()
}

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
