//go:build !weaken

package sqlite

// weak is false: this program has no weakness.
func weak(Weakness) bool { return false }
