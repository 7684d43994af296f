package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unpack unpacks a file.
func unpack(t *testing.T, from, to string) {
	t.Helper()
	packed, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	in, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestMigrate: a folder of the first format is looked at, migrated once, and then has nothing to be done.
func TestMigrate(t *testing.T) {
	dir := t.TempDir()
	unpack(t, filepath.Join("..", "..", "internal", "store", "sqlite", "testdata", "format1.db.gz"), filepath.Join(dir, "tabellion.db"))
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"migrate", "--dry-run"}, exitFine, "has format 1 and would be migrated to"},
		{[]string{"check"}, exitFindings, "run tabellion migrate"}, // the key that signed its audit trail is not kept
		{[]string{"migrate", "--dry-run", "--json"}, exitFine, `{"from":1,"to":`},
		{[]string{"migrate"}, exitFine, "migrated from format 1 to"},
		{[]string{"migrate"}, exitFine, "nothing is to be done"},
		{[]string{"check"}, exitFindings, "1 damage;"},
	} {
		var out bytes.Buffer
		env := &Env{Ctx: context.Background(), Signal: func() os.Signal { return nil }, Stdout: &out, Stderr: &out}
		if code := run(env, append(step.args, "--persistence", dir)); code != step.code || !strings.Contains(out.String(), step.want) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s", step.args, code, step.code, step.want, out.String())
		}
	}
}
