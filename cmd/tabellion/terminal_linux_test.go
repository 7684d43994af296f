package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// Requests of the driver of a terminal: hold its output, and let it go on.
const (
	flowControl = 0x540A // TCXONC
	holdOutput  = 0      // TCOOFF
	goOn        = 1      // TCOON
)

// terminal is a pseudo terminal. What is shown on it is kept.
type terminal struct {
	master, slave *os.File
	mu            sync.Mutex
	shown         bytes.Buffer
	read          chan struct{} // closed when everything was read
}

// newTerminal makes one with so many columns.
func newTerminal(t *testing.T, columns uint16) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("this test needs pseudo terminals: %v", err)
	}
	var unlock, number int32
	size := struct{ rows, columns, x, y uint16 }{24, columns, 0, 0}
	ioctl(t, master, syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	ioctl(t, master, syscall.TIOCGPTN, unsafe.Pointer(&number))
	ioctl(t, master, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{master: master, slave: slave, read: make(chan struct{})}
	go term.keep()
	t.Cleanup(func() {
		slave.Close()
		master.Close()
	})
	return term
}

// ioctl asks the driver of a terminal for something.
func ioctl(t *testing.T, f *os.File, request uintptr, argument unsafe.Pointer) {
	t.Helper()
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(argument)); errno != 0 {
		t.Fatalf("ioctl %#x: %v", request, errno)
	}
}

// keep keeps what is shown, until the terminal is closed.
func (term *terminal) keep() {
	defer close(term.read)
	piece := make([]byte, 4096)
	for {
		n, err := term.master.Read(piece)
		term.mu.Lock()
		term.shown.Write(piece[:n])
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// flow holds the output of the terminal or lets it go on, before it returns: who writes to it meanwhile waits.
func (term *terminal) flow(t *testing.T, action uintptr) {
	t.Helper()
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, term.slave.Fd(), flowControl, action); errno != 0 {
		t.Fatalf("flow control: %v", errno)
	}
}

// press types text.
func (term *terminal) press(t *testing.T, text string) {
	t.Helper()
	if _, err := term.master.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// text is everything that was shown; the terminal is closed by it.
func (term *terminal) text() string {
	term.slave.Close()
	<-term.read
	return term.shown.String()
}

// TestProgressOnATerminal: a check draws its line there and takes it away again; a dumb terminal gets none.
func TestProgressOnATerminal(t *testing.T) {
	dir := makeStore(t)
	for name, tt := range map[string]struct {
		term  string
		drawn bool
	}{"terminal": {"TERM=xterm", true}, "dumb": {"TERM=dumb", false}} {
		t.Run(name, func(t *testing.T) {
			term := newTerminal(t, 40)
			var out bytes.Buffer
			env := &Env{Ctx: context.Background(), Signal: func() os.Signal { return nil }, Stdout: &out, Stderr: term.slave, Environ: []string{tt.term, "NO_COLOR=1"}}
			if code := run(env, []string{"check", "--persistence", dir}); code != exitFine {
				t.Errorf("exit code %d: %s", code, term.text())
			}
			shown := term.text()
			if drawn := strings.Contains(shown, "\r"); drawn != tt.drawn {
				t.Errorf("shown %q", shown)
			}
			if strings.Contains(shown, "\x1b") || tt.drawn && !strings.HasSuffix(shown, " \r") {
				t.Errorf("shown %q: want the line taken away at the end, without colours", shown)
			}
			for _, line := range strings.Split(shown, "\r") {
				if len(line) > 39 {
					t.Errorf("%q is wider than the terminal", line)
				}
			}
			if strings.Contains(out.String(), "\r") || !strings.Contains(out.String(), "no damage") {
				t.Errorf("result %q", out.String())
			}
		})
	}
}

// TestInterruptedBackup: a backup that is interrupted while it works ends with 130, and what it left is not taken for a
// whole backup. It is held midway by its terminal.
func TestInterruptedBackup(t *testing.T) {
	dir := makeStore(t)
	to := filepath.Join(t.TempDir(), "b")
	term := newTerminal(t, 80)
	term.flow(t, holdOutput)
	ctx, cancel := context.WithCancel(context.Background())
	var out bytes.Buffer
	interrupted := func() os.Signal {
		if ctx.Err() != nil {
			return os.Interrupt
		}
		return nil
	}
	ended := make(chan int, 1)
	go func() {
		ended <- run(&Env{Ctx: ctx, Signal: interrupted, Stdout: &out, Stderr: term.slave, Environ: []string{"TERM=xterm"}}, []string{"backup", "--persistence", dir, to})
	}()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // until it has begun
		if names, _ := filepath.Glob(filepath.Join(to, "*")); len(names) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the backup does not begin")
		}
	}
	select {
	case code := <-ended:
		t.Fatalf("the backup ended with %d though its terminal holds it", code)
	default:
	}
	cancel()
	term.flow(t, goOn)
	if code := <-ended; code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	if shown := term.text(); !strings.Contains(shown, "the backup was interrupted; what is in "+to+" is a part of a backup at most") || !strings.Contains(shown, "--force") {
		t.Errorf("shown at the end: %q", shown)
	}
	if _, err := os.Stat(filepath.Join(to, "backup.json")); !errors.Is(err, fs.ErrNotExist) || out.Len() > 0 {
		t.Errorf("it looks whole: %v, %q", err, out.String())
	}
	quiet := &Env{Ctx: context.Background(), Signal: func() os.Signal { return nil }, Stdout: &out, Stderr: &out}
	if code := run(quiet, []string{"restore", "--persistence", filepath.Join(t.TempDir(), "r"), to}); code != exitRefused {
		t.Errorf("restoring it: exit code %d, want 3: %s", code, out.String())
	}
	if code := run(quiet, []string{"backup", "--persistence", dir, to}); code != exitFailed || !strings.Contains(out.String(), "not empty") {
		t.Errorf("a later backup into it: exit code %d: %s", code, out.String())
	}
	if code := run(quiet, []string{"backup", "--persistence", dir, "--force", to}); code != exitFine {
		t.Errorf("with --force: exit code %d: %s", code, out.String())
	}
}

// TestRepairAsks: on a terminal a person says whether anything is changed.
func TestRepairAsks(t *testing.T) {
	dir := makeStore(t)
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte("bytes that nothing needs")))
	stray := filepath.Join(dir, "blobs", digest[:2], digest)
	if err := errors.Join(os.MkdirAll(filepath.Dir(stray), 0o700), os.WriteFile(stray, []byte("bytes that nothing needs"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		answer string
		code   int
		left   bool
	}{{"\n", exitFailed, true}, {"no\n", exitFailed, true}, {"yes\n", exitFine, false}} {
		term := newTerminal(t, 80)
		term.press(t, tt.answer)
		var out bytes.Buffer
		env := &Env{Ctx: context.Background(), Signal: func() os.Signal { return nil }, Stdin: term.slave, Stdout: &out, Stderr: term.slave}
		code := run(env, []string{"repair", "--persistence", dir})
		shown := term.text()
		_, err := os.Stat(stray)
		if code != tt.code || (err == nil) != tt.left || !strings.Contains(shown, "Repair 1 thing in") {
			t.Errorf("answer %q: exit code %d, the bytes: %v, shown %q, %s", tt.answer, code, err, shown, out.String())
		}
	}
}
