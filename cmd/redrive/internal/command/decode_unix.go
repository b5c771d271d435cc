//go:build unix

package command

import (
	"os/exec"
	"syscall"
)

// together ends the children of a program with it: they are one group of processes.
func together(run *exec.Cmd) {
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run.Cancel = func() error { return syscall.Kill(-run.Process.Pid, syscall.SIGKILL) }
}
