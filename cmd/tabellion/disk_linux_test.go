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

// smallDisk is a disk of 4 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("no small disk, and CI must not leave this out: %v", err)
		}
		t.Skipf("NOT RUN: a full disk needs the right to mount one (%v)", err)
	}
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	return disk
}

// fill leaves no room on a small disk. The file that it gives can be removed again.
func fill(t *testing.T, disk string) string {
	t.Helper()
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return filler
}

// TestFullDisk: a server that starts on a full disk says so and ends with 3, and starts once there is room.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t)
	filler := fill(t, disk)
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

// TestBackupOfAFullDisk: a server whose disk is full can be backed up to another one. The command warns that the audit
// trail does not hold it, and the log has it. Once there is room the trail holds backups again.
func TestBackupOfAFullDisk(t *testing.T) {
	disk := smallDisk(t)
	data, ops := filepath.Join(disk, "data"), freeAddress()
	server := exec.Command("tabellion", "serve", "--persistence", data, "--dev", "--listen", freeAddress(), "--ops", ops)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	server.Stderr = log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Process.Kill()
		server.Wait()
	}()
	waitReady(t, "http://"+ops+"/readyz")
	filler := fill(t, disk)
	to := filepath.Join(t.TempDir(), "b")
	out, words := runIn(t, exitFine, "backup", "--persistence", data, to)
	if !strings.Contains(out, "checked") || !strings.Contains(words, "Warning: the audit trail does not hold this backup, because the store takes no entries") {
		t.Errorf("on a full disk: %s%s", out, words)
	}
	text, err := os.ReadFile(log.Name())
	if err != nil || !strings.Contains(string(text), "could not be put into the audit trail") || !strings.Contains(string(text), to) {
		t.Errorf("the log: %v: %s", err, text)
	}
	runIn(t, exitFine, "restore", "--persistence", filepath.Join(t.TempDir(), "copy"), to)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, words := runIn(t, exitFine, "backup", "--persistence", data, to+"2"); strings.Contains(words, "Warning") {
		t.Errorf("with room: %s", words)
	}
	if out, _ := runIn(t, exitFine, "audit", "--persistence", data, "--operation", "operator.backup"); strings.Count(out, to) != 2 || strings.Count(out, to+"2") != 2 {
		t.Errorf("the trail: %s", out)
	}
}

// TestReadOnlyDisk: a folder on a disk that cannot be written is checked and backed up; a repair is refused with what to
// do; a backup is restored from there.
func TestReadOnlyDisk(t *testing.T) {
	disk := smallDisk(t)
	data, saved := filepath.Join(disk, "data"), filepath.Join(disk, "b")
	runIn(t, exitFine, "keys", "create", "--persistence", data, "--user", "a", "--name", "a")
	runIn(t, exitFine, "backup", "--persistence", data, saved)
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "--read-data"}, {"repair", "--dry-run"}, {"backup", filepath.Join(t.TempDir(), "b")}} {
		runIn(t, exitFine, append(args, "--persistence", data)...)
	}
	if _, words := runIn(t, exitRefused, "repair", "--yes", "--persistence", data); !strings.Contains(words, "must be on a disk that can be written: copy "+data+" to one") {
		t.Errorf("repair: %s", words)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if _, words := runIn(t, exitFine, "restore", "--persistence", copied, saved); !strings.Contains(words, "as trustworthy as everybody who could write to its folder") {
		t.Errorf("restore: %s", words)
	}
	runIn(t, exitFine, "check", "--read-data", "--persistence", copied)
}
