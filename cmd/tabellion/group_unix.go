//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a command start in a process group of its own, so that an interrupt at the terminal reaches us alone
// and what the command starts can be ended with it.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills a started command and everything of its group.
func killGroup(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
