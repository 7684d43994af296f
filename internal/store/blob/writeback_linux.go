//go:build linux && (amd64 || arm64)

package blob

import (
	"os"
	"syscall"
)

// syncFileRangeWrite is SYNC_FILE_RANGE_WRITE of sync_file_range(2).
const syncFileRangeWrite = 2

// startWriteBack asks the kernel to begin writing a range of the file to the disk, without waiting for it. It promises
// nothing and reports nothing: the sync at the end does both, also for what fails meanwhile.
func startWriteBack(file *os.File, offset, length int64) {
	conn, err := file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) { _ = syscall.SyncFileRange(int(fd), offset, length, syncFileRangeWrite) })
}
