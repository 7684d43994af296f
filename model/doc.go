// Package model holds data models: what an organisation's tables mean to a caller, who may see and change what of
// them, and the errors that a caller gets.
//
// A definition is a JSON object (one file may hold many). A Registry reads definitions strictly, adds what follows
// from them (archive models, timestamps), and gives immutable Models:
//
//	r := model.NewRegistry(model.Options{})
//	if err := r.Register(definitions...); err != nil { ... }
//	course := r.Get("Course")
//
// Permission judges a context (user, roles) against the role lists of models, fields, relations and computed columns,
// and against a dynamic policy; both must allow:
//
//	access := permission.For(&model.Context{UserID: "u3", Roles: []string{"student"}})
//	err := access.ReadModel(course)
//
// The package is pure: no clock, no database, no network. The query language is in model/gql, plans are in model/plan.
//
// Experimental until 1.0.
package model
