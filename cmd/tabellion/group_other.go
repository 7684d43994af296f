//go:build !unix

package main

import "os/exec"

// ownGroup does nothing: process groups are for Unix.
func ownGroup(*exec.Cmd) {}

// killGroup kills a started command.
func killGroup(c *exec.Cmd) { _ = c.Process.Kill() }
