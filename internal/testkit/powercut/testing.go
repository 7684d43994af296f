package powercut

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// seedEnv overrides the seed of tests that leave it open, to replay a run.
const seedEnv = "POWERCUT_SEED"

// MountForTest mounts on a new folder for the length of a test and logs the seed. Seed 0
// means that of the environment variable POWERCUT_SEED, or a random one. Where no mount is
// possible it skips the test, saying so, or fails it when the environment variable CI is
// set: a skipped suite must not pass for a green one.
func MountForTest(tb testing.TB, seed uint64) *FS {
	tb.Helper()
	seed, err := chooseSeed(seed, os.Getenv(seedEnv))
	if err != nil {
		tb.Fatal(err)
	}
	f, err := Mount(tb.TempDir(), seed)
	if errors.Is(err, ErrUnavailable) {
		if fails, why := unavailable(err, os.Getenv("CI")); fails {
			tb.Fatal(why)
		} else {
			tb.Skip(why)
		}
	}
	if err != nil {
		tb.Fatalf("mount power-cut file system: %v", err)
	}
	tb.Logf("power-cut seed %d (%s=%d replays it where the test leaves it open)", seed, seedEnv, seed)
	tb.Cleanup(func() {
		if err := f.Close(); err != nil {
			tb.Errorf("close power-cut file system: %v", err)
		}
	})
	return f
}

// unavailable decides what a test does that cannot mount.
func unavailable(err error, ci string) (fails bool, why string) {
	return ci != "", fmt.Sprintf("NOT RUN: power-cut suite needs root and /dev/fuse (%v)", err)
}

// chooseSeed applies the rules of MountForTest.
func chooseSeed(seed uint64, env string) (uint64, error) {
	if seed != 0 {
		return seed, nil
	}
	if env == "" {
		return rand.Uint64(), nil
	}
	seed, err := strconv.ParseUint(env, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", seedEnv, err)
	}
	return seed, nil
}
