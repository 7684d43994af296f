package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// Env is everything that a command takes from outside, so that tests can run it in this process.
type Env struct {
	Program string           // how the program was called, for commands to copy
	Ctx     context.Context  // ends at the first signal
	Signal  func() os.Signal // the signal that ended Ctx; nil when there was none
	Stdin   io.Reader
	Stdout  io.Writer // results
	Stderr  io.Writer // words for people, and logs
	Environ []string
}

// systemEnv is the environment of this process. The first signal ends Ctx; the second ends the process at once, which
// loses nothing that was acknowledged.
func systemEnv() (*Env, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup: the process is to outlive its terminal
		signal.Notify(signals, syscall.SIGHUP)
	}
	var first atomic.Pointer[os.Signal]
	go func() {
		s := <-signals
		first.Store(&s)
		cancel()
		s = <-signals
		os.Exit(exitCode(s))
	}()
	env := &Env{
		Program: os.Args[0], Ctx: ctx, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(),
		Signal: func() os.Signal {
			if s := first.Load(); s != nil {
				return *s
			}
			return nil
		},
	}
	return env, cancel
}

// exitCode is the exit code of a process that a signal ended: 128 and its number, 130 for an interrupt.
func exitCode(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return exitFailed
}

// getenv finds a variable of the environment; the last one counts.
func (e *Env) getenv(name string) string {
	for i := len(e.Environ) - 1; i >= 0; i-- {
		if v, ok := cutEnv(e.Environ[i], name); ok {
			return v
		}
	}
	return ""
}

// lookup finds a variable of the environment, and tells whether it is set at all.
func (e *Env) lookup(name string) (string, bool) {
	for i := len(e.Environ) - 1; i >= 0; i-- {
		if v, ok := cutEnv(e.Environ[i], name); ok {
			return v, true
		}
	}
	return "", false
}

// cutEnv takes the value of NAME=value.
func cutEnv(s, name string) (string, bool) {
	if len(s) > len(name) && s[:len(name)] == name && s[len(name)] == '=' {
		return s[len(name)+1:], true
	}
	return "", false
}
