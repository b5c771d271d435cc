package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// links are the network between Java nodes on one machine. Each node knows the others by addresses of its own, behind
// which is a relay: a link can be cut, and clients still reach both ends.
type links struct {
	nodes  int
	relays map[[2]int][]*relay // by the two nodes: who dials, and who listens
}

// newLinks relays ports: node i listens at each of them plus i.
func newLinks(nodes int, ports ...int) (*links, error) {
	l := &links{nodes: nodes, relays: make(map[[2]int][]*relay)}
	for from := range nodes {
		for to := range nodes {
			for _, port := range ports {
				if from == to {
					continue
				}
				r, err := newRelay(fmt.Sprintf("%s:%d", linkHost(from, to), port+to),
					fmt.Sprintf("127.0.0.1:%d", port+to))
				if err != nil {
					return nil, errors.Join(err, l.close())
				}
				l.relays[[2]int{from, to}] = append(l.relays[[2]int{from, to}], r)
			}
		}
	}
	return l, nil
}

func linkHost(from, to int) string {
	if from == to {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.0.1.%d%d", from+1, to+1)
}

// hosts writes a file of Java's hosts for a node, in which name-1 is the first.
func (l *links) hosts(folder, name string, from int) (file string, err error) {
	text := "127.0.0.1 localhost\n"
	for to := range l.nodes {
		text += fmt.Sprintf("%s %s-%d\n", linkHost(from, to), name, to+1)
	}
	file = filepath.Join(folder, "hosts")
	return file, os.WriteFile(file, []byte(text), 0o644)
}

// cut keeps what others and a node say to each other, or lets it pass again.
func (l *links) cut(node int, cut bool) {
	for ends, relays := range l.relays {
		if ends[0] == node || ends[1] == node {
			for _, r := range relays {
				r.set(cut)
			}
		}
	}
}

func (l *links) close() (err error) {
	for _, relays := range l.relays {
		for _, r := range relays {
			err = errors.Join(err, r.close())
		}
	}
	return err
}

// relay passes bytes on. While it is cut it is silent, as a network is.
type relay struct {
	listener net.Listener
	all      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	healed chan struct{} // nil while nothing is cut
	open   map[net.Conn]bool
}

func newRelay(at, to string) (*relay, error) {
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	r := &relay{listener: listener, open: make(map[net.Conn]bool)}
	r.all.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			r.all.Go(func() { r.connect(in, to) })
		}
	})
	return r, nil
}

func (r *relay) connect(in net.Conn, to string) {
	defer r.drop(in)
	if !r.keep(in) {
		return
	}
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer r.drop(out)
	if !r.keep(out) {
		return
	}
	r.all.Go(func() { r.pass(in, out) })
	r.pass(out, in)
}

func (r *relay) keep(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.open[conn] = true
	}
	return !r.closed
}

func (r *relay) drop(conn net.Conn) {
	_ = conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, conn)
}

// pass ends with its connection. What comes while the relay is cut waits: TCP would send it again.
func (r *relay) pass(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		r.mu.Lock()
		healed := r.healed
		r.mu.Unlock()
		if healed != nil {
			<-healed
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (r *relay) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case cut && r.healed == nil && !r.closed:
		r.healed = make(chan struct{})
	case !cut && r.healed != nil:
		close(r.healed)
		r.healed = nil
	}
}

func (r *relay) close() error {
	r.set(false)
	err := r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for conn := range r.open {
		_ = conn.Close()
	}
	r.mu.Unlock()
	r.all.Wait()
	return err
}
