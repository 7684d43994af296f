// Command seed makes the ferry database of the example, where there is none yet:
//
//	go run ./examples/harbourline/seed examples/harbourline/data/ferries.db
package main

import (
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver
)

//go:embed ferries.sql
var script string

// main makes the database that the argument names.
func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: seed FILE")
		os.Exit(2)
	}
	if err := seed(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "seed:", err)
		os.Exit(2)
	}
}

// seed makes the database beside its place and moves it there when it is whole. One that is there stays as it is.
func seed(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	part := path + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+part)
	if err != nil {
		return err
	}
	_, err = db.Exec(script)
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	return os.Rename(part, path)
}
