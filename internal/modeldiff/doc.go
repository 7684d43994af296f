// Package modeldiff holds the tests that ask SQLite, PostgreSQL and model/eval the same random queries on models, made by
// internal/testkit/modelgen, and want the same rows in the same order from all three.
//
//	go test ./internal/modeldiff                       500 queries
//	QUERIES=5000 SEED=2 go test ./internal/modeldiff   more of them, and others
package modeldiff
