package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSecondSignal: while a request is under way the first signal waits for it, and the second ends the process at once
// (security requirements, R12).
func TestSecondSignal(t *testing.T) {
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		t.Run(signal.String(), func(t *testing.T) { secondSignal(t, signal, code) })
	}
}

// secondSignal sends a signal twice and wants the exit code.
func secondSignal(t *testing.T, signal syscall.Signal, code int) {
	// A program that was started with SIGHUP ignored, as by nohup, goes on ignoring it, and so do its children. A caught
	// signal is not inherited: this makes the server start with the default, however the tests were started.
	caught := make(chan os.Signal, 1)
	ossignal.Notify(caught, signal)
	defer ossignal.Stop(caught)
	listen, ops := freeAddress(), freeAddress()
	server := exec.Command("tabellion", "serve", "--persistence", filepath.Join(t.TempDir(), "data"), "--dev", "--listen", listen, "--ops", ops)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Process.Kill()
	waitReady(t, "http://"+ops+"/readyz")
	c, err := net.Dial("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The server answers 100 when it waits for the body, so the request is under way from there on.
	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n", listen)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 100"))); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Wait() }()
	server.Process.Signal(signal)
	select {
	case err := <-done:
		t.Fatalf("the first signal did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	second := time.Now()
	server.Process.Signal(signal)
	var exit *exec.ExitError
	select {
	case err := <-done:
		if !errors.As(err, &exit) || exit.ExitCode() != code {
			t.Errorf("it ended with %v, want %d", err, code)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the second signal did not end it")
	}
	if took := time.Since(second); took > 5*time.Second {
		t.Errorf("the second signal took %s", took)
	}
}

// TestStoppedOwner: commands do not wait for a server that was stopped. They name it and end with 3, and work again once
// it goes on.
func TestStoppedOwner(t *testing.T) {
	t.Parallel()
	data, ops := filepath.Join(t.TempDir(), "data"), freeAddress()
	server := exec.Command("tabellion", "serve", "--persistence", data, "--dev", "--listen", freeAddress(), "--ops", ops)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Process.Kill()
		server.Wait()
	}()
	waitReady(t, "http://"+ops+"/readyz")
	server.Process.Signal(syscall.SIGSTOP)
	want := fmt.Sprintf("process %d has the folder %s and does not answer", server.Process.Pid, data)
	commands := [][]string{
		{"check", "--persistence", data}, {"namespaces", "--persistence", data}, {"keys", "list", "--persistence", data},
		{"backup", "--persistence", data, filepath.Join(t.TempDir(), "b")}, {"stdio", "--persistence", data},
		{"policy", "explain", "--persistence", data, "user:ana", "persistence.read", "/persistence"},
		{"serve", "--persistence", data, "--listen", freeAddress(), "--ops", freeAddress()},
	}
	ended := make(chan string, len(commands))
	for _, args := range commands {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // a guard against waiting for ever
			defer cancel()
			c := exec.CommandContext(ctx, "tabellion", args...)
			out, err := c.CombinedOutput()
			problem := ""
			if c.ProcessState == nil || c.ProcessState.ExitCode() != exitRefused || !strings.Contains(string(out), want) {
				problem = fmt.Sprintf("%v: %v: %s", args, err, out)
			}
			ended <- problem
		}()
	}
	for range commands {
		if problem := <-ended; problem != "" {
			t.Error(problem)
		}
	}
	server.Process.Signal(syscall.SIGCONT)
	runIn(t, exitFine, "check", "--persistence", data)
}
