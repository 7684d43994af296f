package control

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// checkPeer refuses a peer that runs as another user than this process, unless it is root.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("ask for the peer's user: %w", err)
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return fmt.Errorf("ask for the peer's user: %w", err)
	}
	if credErr != nil {
		return fmt.Errorf("ask for the peer's user: %w", credErr)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("the peer runs as user %d", cred.Uid)
	}
	return nil
}
