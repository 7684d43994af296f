//go:build unix

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// narrow is the width of a terminal that does not tell.
const narrow = 80

// terminalWidth is the number of columns of the terminal that f is; 0 when it is none.
func terminalWidth(f *os.File) int {
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	switch {
	case errno != 0:
		return 0
	case size.columns == 0:
		return narrow
	}
	return int(size.columns)
}
