package config

import (
	"fmt"
	"iter"
	"strings"
)

// leaves gives every leaf that can be set by one text, with its full path, in the order of the documentation.
func leaves() iter.Seq2[string, *key] {
	return func(yield func(string, *key) bool) {
		var walk func(k *key, path string) bool
		walk = func(k *key, path string) bool {
			if k.leaf() {
				return yield(path, k)
			}
			for _, sub := range k.keys {
				if !walk(sub, join(path, sub.name)) {
					return false
				}
			}
			return true
		}
		walk(root, "")
	}
}

// hint names the valid key that is nearest to a wrong one: of the same section when one is near, else of the whole
// file.
func (d *decoder) hint(parent *key, path, name string) string {
	var best string
	least := 1 << 30
	consider := func(candidate, full string) {
		if n := distance(name, candidate); n < least {
			least, best = n, full
		}
	}
	for _, k := range parent.keys {
		if k.unserved == "" {
			consider(k.name, join(path, k.name))
		}
	}
	if least > 1+len(name)/3 {
		for full := range leaves() {
			consider(full[strings.LastIndexByte(full, '.')+1:], full)
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; the nearest valid key is %q", best)
}

// distance is the number of letters to insert, drop, change or swap with their neighbour to make a into b.
func distance(a, b string) int {
	rows := [3][]int{}
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		rows[0], rows[1], rows[2] = last, row, before
	}
	return rows[1][len(b)]
}
