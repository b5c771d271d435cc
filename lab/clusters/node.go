package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// node is a server's process, and all that it starts.
type node struct {
	name    string
	folder  string
	command []string
	env     []string
	user    string // of the process, if we are root
	answers func(context.Context) error
	// recovers returns the options with which a node starts again.
	recovers func(*node) ([]string, error)

	cmd   *exec.Cmd
	ended chan struct{}
}

// patience is how long a node may take until it answers.
const patience = 10 * time.Minute

// start starts the node. Wait for it with ready.
func (n *node) start() error {
	out, err := os.OpenFile(filepath.Join(n.folder, n.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	arguments := n.command[1:]
	if n.recovers != nil && n.cmd != nil {
		more, err := n.recovers(n)
		if err != nil {
			return err
		}
		arguments = append(arguments[:len(arguments):len(arguments)], more...)
	}
	cmd := exec.Command(n.command[0], arguments...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = n.folder, append(os.Environ(), n.env...), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if cmd.SysProcAttr.Credential, err = credential(n.user); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	n.cmd, n.ended = cmd, make(chan struct{})
	go func() { _ = cmd.Wait(); close(n.ended) }()
	return nil
}

// ready waits until the node answers.
func (n *node) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := n.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-n.ended:
			return fmt.Errorf("%s ended: %w\n%s", n.name, err, n.said())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w\n%s", n.name, err, n.said())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// said is the end of what the node wrote.
func (n *node) said() string {
	text, _ := os.ReadFile(filepath.Join(n.folder, n.name+".log"))
	return string(text[max(len(text)-2000, 0):])
}

// signal goes to all processes of the node: some have groups of their own.
func (n *node) signal(s syscall.Signal) error {
	children, err := childrenOf()
	if err != nil {
		return err
	}
	all := []int{n.cmd.Process.Pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	for _, pid := range all {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// childrenOf returns the children of each process.
func childrenOf() (map[int][]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := make(map[int][]int)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		var pid, parent int
		var state string
		behind := strings.LastIndex(string(text), ")") // a name can have anything
		if _, err := fmt.Sscan(string(text), &pid); err != nil || behind < 0 {
			continue
		}
		if _, err := fmt.Sscan(string(text[behind+1:]), &state, &parent); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	return children, nil
}

func (n *node) kill() {
	if n.cmd != nil {
		_ = n.signal(syscall.SIGKILL)
		<-n.ended
	}
}

// restart stops the node in its own way, and starts it.
func (n *node) restart(ctx context.Context, with syscall.Signal) error {
	if err := n.cmd.Process.Signal(with); err != nil {
		return err
	}
	select {
	case <-n.ended:
	case <-time.After(patience):
		n.kill()
	}
	return n.again(ctx)
}

func (n *node) again(ctx context.Context) error {
	if err := n.start(); err != nil {
		return err
	}
	return n.ready(ctx)
}

// crashed kills the node, and starts it after a while.
func (n *node) crashed(ctx context.Context, after time.Duration) error {
	n.kill()
	if err := sleep(ctx, after); err != nil {
		return err
	}
	return n.again(ctx)
}

// hangs stops processes, which keep their connections, and lets them go on after a while.
func hangs(ctx context.Context, after time.Duration, nodes ...*node) (err error) {
	for _, n := range nodes {
		err = errors.Join(err, n.signal(syscall.SIGSTOP))
	}
	err = errors.Join(err, sleep(ctx, after))
	for _, n := range nodes {
		err = errors.Join(err, n.signal(syscall.SIGCONT))
	}
	return err
}

func credential(name string) (*syscall.Credential, error) {
	if name == "" || os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(errUID, errGID)
}

// folderFor makes a folder that a user can write.
func folderFor(parent, name, of string) (string, error) {
	folder := filepath.Join(parent, name)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	as, err := credential(of)
	if err == nil && as != nil {
		err = os.Chown(folder, int(as.Uid), int(as.Gid))
	}
	return folder, err
}

// runAs runs a program to its end.
func runAs(ctx context.Context, name string, env []string, program string, arguments ...string) error {
	_, err := output(ctx, name, env, program, arguments...)
	return err
}

func output(ctx context.Context, name string, env []string, program string, arguments ...string) (string, error) {
	as, err := credential(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir, cmd.Env = "/", append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return string(out), err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
