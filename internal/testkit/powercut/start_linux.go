package powercut

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// serveEnv marks the serving process.
const serveEnv = "TABELLION_POWERCUT_SERVE"

// server is the serving process, as its parent sees it.
type server struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// start runs the serving process and connects to it.
func (f *FS) start() error {
	if err := usable(); err != nil {
		return err
	}
	control, theirControl, err := socketPair()
	if err != nil {
		return err
	}
	defer theirControl.Close()
	events, theirEvents, err := socketPair()
	if err != nil {
		control.Close()
		return err
	}
	defer theirEvents.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), serveEnv+"=1")
	cmd.ExtraFiles = []*os.File{theirControl, theirEvents}
	cmd.Stderr = os.Stderr
	cmd.Dir = "/"                                         // its own folder must not keep a mount busy
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the keyboard is not for it
	if err := cmd.Start(); err != nil {
		control.Close()
		events.Close()
		return fmt.Errorf("start the power-cut server: %w", err)
	}
	f.server = &server{cmd: cmd, done: make(chan struct{})}
	f.control, f.enc, f.dec = control, json.NewEncoder(control), json.NewDecoder(control)
	go func() {
		cmd.Wait() // how it ended tells nothing: an answer that did not come has told already
		close(f.server.done)
	}()
	go func() {
		defer events.Close()
		f.hear(events)
	}()
	return nil
}

// usable says why there can be no mount, as ErrUnavailable, or nil.
func usable() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("%w: mounting needs root, not user %d", ErrUnavailable, uid)
	}
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return dev.Close()
}

// socketPair returns the two ends of a connection.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "powercut"), os.NewFile(uintptr(fds[1]), "powercut server"), nil
}

// stop waits for the serving process, whose connection is closed, to unmount and end; one
// that does not end is killed and its mount removed from here.
func (s *server) stop(dir string) error {
	select {
	case <-s.done:
	case <-time.After(stopTimeout):
		s.cmd.Process.Kill()
		<-s.done
	}
	mounted, err := isMount(dir)
	if err != nil || !mounted {
		return err
	}
	if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// isMount reports whether a power-cut file system is still mounted on dir, dead or alive.
// It asks the kernel's list: the mount itself may not answer any more.
func isMount(dir string) (bool, error) {
	list, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	// Fields: four numbers and the root, then the mount point with octal escapes; the type
	// follows a lone dash.
	escaped := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(dir)
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] == escaped && strings.Contains(line, " - fuse.powercut ") {
			return true, nil
		}
	}
	return false, nil
}
