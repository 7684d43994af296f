package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
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
