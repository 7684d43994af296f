//go:build !unix

package main

import "os"

// terminalWidth is the number of columns of the terminal that f is; 0 when it is none, or that cannot be told.
func terminalWidth(*os.File) int { return 0 }
