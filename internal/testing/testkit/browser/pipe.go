package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// pipe speaks the DevTools protocol with a browser that was started with --remote-debugging-pipe: JSON, each message
// ended by a zero.
type pipe struct {
	in, out *os.File

	done chan struct{} // closed when the browser has ended

	mu      sync.Mutex
	last    int
	waiting map[int]chan<- reply
	hearers map[string]func(event string, params json.RawMessage) // by session
	ended   bool
}

type reply struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

func newPipe(in, out *os.File) *pipe {
	p := &pipe{in: in, out: out, done: make(chan struct{}), waiting: map[int]chan<- reply{}, hearers: map[string]func(string, json.RawMessage){}}
	go p.read()
	return p
}

// read passes on what the browser says, until it ends.
func (p *pipe) read() {
	defer close(p.done)
	lines := bufio.NewReader(p.out)
	for {
		line, err := lines.ReadBytes(0)
		if err != nil {
			break
		}
		var said struct {
			ID                int
			SessionID, Method string
			Params            json.RawMessage
			reply
		}
		if json.Unmarshal(line[:len(line)-1], &said) != nil {
			continue
		}
		p.mu.Lock()
		hear, answer := p.hearers[said.SessionID], p.waiting[said.ID]
		delete(p.waiting, said.ID)
		p.mu.Unlock()
		switch {
		case said.ID != 0 && answer != nil:
			answer <- said.reply
		case said.ID == 0 && hear != nil:
			hear(said.Method, said.Params)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for id, answer := range p.waiting {
		delete(p.waiting, id)
		answer <- reply{Error: &struct{ Message string }{"the browser has ended"}}
	}
}

// hear calls f with the events of a session. It must not wait for the browser.
func (p *pipe) hear(session string, f func(event string, params json.RawMessage)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hearers[session] = f
}

// call calls a method of the protocol, in a session or without one, and reads its result into result, if that is not
// nil.
func (p *pipe) call(session, method string, params map[string]any, result any) error {
	answers := make(chan reply, 1)
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return fmt.Errorf("%s: the browser has ended", method)
	}
	p.last++
	asked := map[string]any{"id": p.last, "method": method, "params": params}
	if session != "" {
		asked["sessionId"] = session
	}
	text, err := json.Marshal(asked)
	if err == nil {
		p.waiting[p.last] = answers
		_, err = p.in.Write(append(text, 0))
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	got := <-answers
	if got.Error != nil {
		return fmt.Errorf("%s: %s", method, got.Error.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(got.Result, result)
}

// wait waits until the browser has ended, and nothing is read any more.
func (p *pipe) wait() {
	<-p.done
	_ = p.out.Close()
}
