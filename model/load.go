package model

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// Bounds of what Load reads.
const (
	maxDefinitionBytes = 4 << 20 // of one file
	maxDefinitionFiles = 10_000
	maxFolderEntries   = 100_000 // looked at, files and folders of every kind
)

// hostConfig is the configuration of the reference's host, which stands beside definitions (section 18.2).
const hostConfig = "store.config.json"

// Load reads definitions from a file that holds one, or an array of them, or from every .json file of a folder and the
// folders below, in the order of their paths; names that begin with _ or . are skipped. From a folder nothing outside is
// read, also not through links. Errors begin with ERR:LOAD and name the file, and where its JSON is wrong.
func Load(at string) ([]canonjson.Value, error) {
	info, err := os.Stat(at)
	if err != nil {
		return nil, loadError(at, err)
	}
	var out []canonjson.Value
	if info.IsDir() {
		out, err = loadFolder(at)
	} else {
		// The file was named, so it may be a link to anywhere.
		out, err = loadFile(at, os.Stat, func(name string) (fs.File, error) { return os.Open(name) })
		if err != nil {
			err = loadError(at, err)
		}
	}
	if err == nil && len(out) == 0 {
		err = loadError(at, errors.New("there is no model definition in it: a definition is a JSON object in a file whose name ends in .json"))
	}
	return out, err
}

// loadFolder reads the definitions of a folder.
func loadFolder(at string) ([]canonjson.Value, error) {
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, loadError(at, err)
	}
	defer root.Close()
	files, err := definitionFiles(root.FS())
	if err != nil {
		return nil, loadError(at, err)
	}
	var out []canonjson.Value
	for _, file := range files {
		all, err := loadFile(file, root.Stat, root.FS().Open)
		if err != nil {
			return nil, loadError(filepath.Join(at, filepath.FromSlash(file)), err)
		}
		out = append(out, all...)
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
	entries := 0
	err := fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		entries++
		base := path.Base(name)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case entries > maxFolderEntries:
			return fmt.Errorf("there are more than %d files and folders in it", maxFolderEntries)
		case name == ".":
		case strings.HasPrefix(base, "_"), strings.HasPrefix(base, "."):
			if e.IsDir() {
				return fs.SkipDir
			}
		case base == hostConfig:
			return fmt.Errorf("%s is the configuration of another program and no definition; name the folder of the definitions, and write its sources into models.sources", name)
		case !e.IsDir() && strings.HasSuffix(base, ".json"):
			files = append(files, name)
		}
		if len(files) > maxDefinitionFiles {
			return fmt.Errorf("there are more than %d files", maxDefinitionFiles)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// loadFile reads the definitions of one file. It is looked at before it is opened: opening a pipe would wait for a writer.
func loadFile(name string, stat func(string) (fs.FileInfo, error), open func(string) (fs.File, error)) ([]canonjson.Value, error) {
	info, err := stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDefinitionBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxDefinitionBytes {
		return nil, fmt.Errorf("it has more than %d bytes", maxDefinitionBytes)
	}
	return readDefinitions(text)
}

// readDefinitions reads the text of a file: a definition, or an array of them.
func readDefinitions(text []byte) ([]canonjson.Value, error) {
	v, err := canonjson.ParseStrict(text, canonjson.Limits{Depth: 64, Nodes: 1_000_000})
	if flaw, ok := errors.AsType[*canonjson.Flaw](err); ok {
		before := text[:min(flaw.Offset, len(text))]
		line := strings.Split(string(before), "\n")
		return nil, fmt.Errorf("line %d, column %d: %s", len(line), 1+utf8.RuneCountInString(line[len(line)-1]), flaw.Message)
	}
	if err != nil {
		return nil, err // a *canonjson.SyntaxError names line and column itself
	}
	switch v.Kind() {
	case canonjson.KindObject:
		return []canonjson.Value{v}, nil
	case canonjson.KindArray:
		return v.Items(), nil
	}
	return nil, fmt.Errorf("a file of definitions holds an object or an array of objects, not a value of type %s", v.Kind())
}
