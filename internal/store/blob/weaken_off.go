//go:build !weaken

package blob

// weak is false: this program has no weakness.
func weak(Weakness) bool { return false }
