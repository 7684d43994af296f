package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFullDisk: a server that starts on a full disk says so and ends with 3, and starts once there is room.
func TestFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=2m"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("no small disk, and CI must not leave this out: %v", err)
		}
		t.Skipf("NOT RUN: a full disk needs the right to mount one (%v)", err)
	}
	defer syscall.Unmount(disk, syscall.MNT_DETACH)
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	create := func() (string, error) {
		out, err := exec.Command("tabellion", "keys", "create", "--persistence", filepath.Join(disk, "data"), "--user", "a", "--name", "a", "--roles", "admin").CombinedOutput()
		return string(out), err
	}
	out, err := create()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(out, "is full; free some of it and start again") {
		t.Errorf("on the full disk: %v: %s", err, out)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if out, err := create(); err != nil {
		t.Errorf("with room: %v: %s", err, out)
	}
}
