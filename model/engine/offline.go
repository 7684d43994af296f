package engine

import (
	"context"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
)

// Describe is Engine.Describe for definitions alone: it needs no source and no function.
func Describe(r *model.Registry, c Call) canonjson.Value {
	e := &Engine{cfg: Config{Registry: r, Permission: &model.Permission{Rules: model.DefaultRules()}}}
	return e.Describe(context.Background(), c)
}
