package main

import (
	"strings"

	"github.com/alecthomas/kong"
)

// roleList is a flag of roles, separated by commas. An empty list that was given is no role, and not the default.
type roleList struct {
	given bool
	names []string
}

// Decode implements kong.MapperValue.
func (r *roleList) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("roles", &text); err != nil {
		return err
	}
	r.given = true
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			r.names = append(r.names, name)
		}
	}
	return nil
}
