package model

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Bounds of what Load reads.
const (
	maxDefinitionBytes = 4 << 20
	maxDefinitionFiles = 10_000
)

// Load reads definitions from a file that holds one, or an array of them, or from every .json file of a folder and the
// folders below, in the order of their paths; names that begin with _ or . are skipped. Nothing outside the folder is
// read, also not through links. Errors begin with ERR:LOAD and name the file, and where its JSON is wrong.
func Load(at string) ([]canonjson.Value, error) {
	info, err := os.Stat(at)
	if err != nil {
		return nil, loadError(at, err)
	}
	dir, name := filepath.Split(filepath.Clean(at))
	if info.IsDir() {
		dir, name = at, ""
	}
	if dir == "" {
		dir = "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, loadError(at, err)
	}
	defer root.Close()
	files := []string{name}
	if name == "" {
		if files, err = definitionFiles(root.FS()); err != nil {
			return nil, loadError(at, err)
		}
	}
	var out []canonjson.Value
	for _, file := range files {
		all, err := loadFile(root.FS(), file)
		if err != nil {
			return nil, loadError(filepath.Join(dir, file), err)
		}
		out = append(out, all...)
	}
	if len(out) == 0 {
		return nil, loadError(at, errors.New("there is no model definition in it: a definition is a JSON object in a file whose name ends in .json"))
	}
	return out, nil
}

// loadError names the file, once.
func loadError(at string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("ERR:LOAD %s: %w", at, err)
}

// definitionFiles lists the files of a folder, sorted.
func definitionFiles(root fs.FS) ([]string, error) {
	var files []string
	err := fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if name != "." && (strings.HasPrefix(base, "_") || strings.HasPrefix(base, ".")) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !e.IsDir() && strings.HasSuffix(base, ".json") {
			files = append(files, name)
		}
		if len(files) > maxDefinitionFiles {
			return fmt.Errorf("there are more than %d files", maxDefinitionFiles)
		}
		return nil
	})
	sort.Strings(files)
	return files, err
}

// loadFile reads the definitions of one file.
func loadFile(root fs.FS, name string) ([]canonjson.Value, error) {
	f, err := root.Open(filepath.ToSlash(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxDefinitionBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxDefinitionBytes {
		return nil, fmt.Errorf("it has more than %d bytes", maxDefinitionBytes)
	}
	v, flaw, err := canonjson.Parse(text, canonjson.Limits{Depth: 64, Nodes: 1_000_000})
	if err != nil {
		return nil, err // it tells line and column
	}
	if flaw != nil && flaw.Rule != canonjson.NumberExact {
		return nil, errors.New(flaw.Message)
	}
	if v.Kind() == canonjson.KindArray {
		return v.Items(), nil
	}
	return []canonjson.Value{v}, nil
}
