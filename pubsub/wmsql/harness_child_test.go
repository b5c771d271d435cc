package wmsql_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// setting is what a consuming process is told.
type setting struct {
	Server, Address, Topic, Outputs string
	Hang                            string // the message in whose handler it says so and never returns
}

const childVariable = "SPILLWAY_WMSQL_CHILD"

// TestConsumer is no test but the process that consumes until its standard input ends, as it does with its parent.
func TestConsumer(t *testing.T) {
	told := os.Getenv(childVariable)
	if told == "" {
		t.Skip("this is a process of other tests")
	}
	var s setting
	if err := json.Unmarshal([]byte(told), &s); err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, db: openAt(t, s.Server, s.Address), topic: s.Topic, outs: s.Outputs}
	stop := b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
		if err := b.write(msg, "one"); err != nil {
			return nil, err
		}
		if msg.UUID == s.Hang {
			say("hangs")
			select {}
		}
		time.Sleep(time.Millisecond)
		return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, b.write(msg, "two")
	})
	say("consumes")
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
}

func say(what string) { _, _ = os.Stdout.WriteString("it " + what + "\n") }

// process is a consuming process, as its parent sees it.
type process struct {
	*bench
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  chan string
	done  chan struct{}
}

func (b *bench) consumer(s server, hang string) *process {
	b.Helper()
	told, err := json.Marshal(setting{s.name, s.address, b.topic, b.outs, hang})
	if err != nil {
		b.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	p := &process{bench: b, cmd: exec.Command(program, "-test.run", "^TestConsumer$"), said: make(chan string, 100), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(told))
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.kill)
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if what, ok := strings.CutPrefix(lines.Text(), "it "); ok {
				p.said <- what
			} else if strings.Contains(lines.Text(), "RACE") || strings.Contains(lines.Text(), "FAIL") {
				b.Errorf("the process: %s", lines.Text())
			}
		}
		_ = p.cmd.Wait()
	}()
	p.until("consumes")
	return p
}

func (p *process) until(what string) {
	p.Helper()
	for {
		select {
		case said := <-p.said:
			if said == what {
				return
			}
		case <-p.done:
			p.Fatalf("the process ended before it %s", what)
		case <-time.After(patience):
			p.Fatalf("the process never %s", what)
		}
	}
}

// kill is SIGKILL: nothing is finished, committed or requeued.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.stdin.Close()
}
