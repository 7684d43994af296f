// Package realdb tries introspection, checks and queries on public databases that nobody here wrote. It has tests only.
package realdb
