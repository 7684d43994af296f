package powercut

import (
	"os"
	"testing"
)

// A serving process that ends by itself leaves a dead mount behind. Close removes it.
func TestCloseAfterServerDied(t *testing.T) {
	f := MountForTest(t, 1)
	if err := f.server.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-f.server.done
	if _, err := os.ReadDir(f.Dir()); err == nil {
		t.Error("the folder still answers")
	}
	if _, err := f.Counts(); err == nil {
		t.Error("the server still answers")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if mounted, err := isMount(f.Dir()); mounted || err != nil {
		t.Errorf("still mounted: %v, %v", mounted, err)
	}
}
