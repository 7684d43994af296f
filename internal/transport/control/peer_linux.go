package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// checkPeer refuses a peer that runs as another user than this process, unless it is root.
func checkPeer(c *net.UnixConn) error {
	cred, err := peer(c)
	if err != nil {
		return fmt.Errorf("ask for the peer's user: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("the peer runs as user %d", cred.Uid)
	}
	return nil
}

// peerPID is the process that listens at the other end; 0 when it cannot be told.
func peerPID(c *net.UnixConn) int {
	cred, err := peer(c)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}

// peer asks the system who is at the other end.
func peer(c *net.UnixConn) (cred *syscall.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	return cred, errors.Join(controlErr, err)
}
