// Package modelaccess asks what a caller of models can see, learn and do: every role, model, field and operation, through
// the engine and through the tools behind the gate, against expectations that are written by hand (models, sections 13, 14
// and 23; security requirements, S26 to S28, S35 and S36).
package modelaccess
