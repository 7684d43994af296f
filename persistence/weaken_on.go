//go:build weaken

package persistence

import "os"

// weak tells whether the program was told to have the weakness.
func weak(w Weakness) bool { return os.Getenv("TABELLION_WEAKEN") == string(w) }
