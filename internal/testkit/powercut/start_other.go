//go:build !linux

package powercut

import (
	"fmt"
	"runtime"
)

// server stands for the serving process, which there is none of here.
type server struct{}

// stop has nothing to do.
func (*server) stop(string) error { return nil }

// start says that there is no such file system here.
func (f *FS) start() error {
	return fmt.Errorf("%w: no FUSE on %s", ErrUnavailable, runtime.GOOS)
}
