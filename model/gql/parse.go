package gql

import (
	"strings"

	"github.com/tabellion-mcp/tabellion/model"
)

// maxDepth bounds the nesting of blocks. Every profile allows far fewer relation levels.
const maxDepth = 64

// Parse reads a query. A failure is a *model.Error with the class Parse, or Limit above MaxText.
func Parse(text string) (*Query, error) {
	if len(text) > MaxText {
		return nil, model.Errorf(model.Limit, "a query may have %d bytes at most, not %d", MaxText, len(text))
	}
	p := &parser{lexer: lexer{text: text}}
	if err := p.advance(); err != nil {
		return nil, err
	}
	return p.query()
}

// parser reads tokens, one ahead.
type parser struct {
	lexer
	token token
}

// advance takes the next token.
func (p *parser) advance() error {
	t, err := p.next()
	p.token = t
	return err
}

// unexpected is the error for the token at hand.
func (p *parser) unexpected(expected, example string) error {
	return p.fault(p.token.at, expected, p.token.show(), example)
}

// query reads the whole text.
func (p *parser) query() (*Query, error) {
	if p.token.kind != id {
		return nil, p.unexpected("the name of a model", exampleQuery)
	}
	q := &Query{Model: p.token.text, At: p.token.at}
	err := p.advance()
	if err == nil && p.token.is("(") {
		q.Args, err = p.arguments(true)
	}
	if err == nil && p.token.kind == arrow {
		if err = p.advance(); err == nil && !p.token.is("{") {
			err = p.unexpected("a block { ... } after ->", `Model($limit: @l) -> { field }`)
		}
	}
	if err == nil && p.token.is("{") {
		q.Items, err = p.block(1)
	}
	if err == nil && p.token.kind != end {
		err = p.unexpected("the end of the query", exampleQuery)
	}
	if err != nil {
		return nil, err
	}
	return q, nil
}

// arguments reads ( name: @ref ... ). The root has more of them than a relation.
func (p *parser) arguments(root bool) (Args, error) {
	var args Args
	if err := p.advance(); err != nil {
		return args, err
	}
	for !p.token.is(")") {
		if p.token.is(",") {
			if err := p.advance(); err != nil {
				return args, err
			}
			continue
		}
		if err := p.argument(&args, root); err != nil {
			return args, err
		}
	}
	return args, p.advance()
}

// argument reads one argument into args.
func (p *parser) argument(args *Args, root bool) error {
	if p.token.kind != id {
		return p.unexpected("an argument ("+argumentNames(root)+") or )", exampleQuery)
	}
	name := strings.TrimPrefix(p.token.text, "$")
	slot := args.slot(name)
	if slot == nil {
		return p.unexpected("one of the arguments "+argumentNames(root), exampleQuery)
	}
	if !root && (name == "group" || name == "having") {
		return p.unexpected("one of the arguments "+argumentNames(root)+" of a relation (groups are made at the root only)", exampleKid)
	}
	if err := p.advance(); err != nil {
		return err
	}
	if !p.token.is(":") {
		return p.unexpected(": and a parameter after $"+name, exampleValue)
	}
	if err := p.advance(); err != nil {
		return err
	}
	if p.token.kind != ref {
		return p.unexpected("a parameter such as @p after $"+name+": (values stand in params, never in the text)", exampleValue)
	}
	*slot = p.token.text
	return p.advance()
}

// slot is where the argument of this name is kept, nil when there is none.
func (a *Args) slot(name string) *string {
	switch name {
	case "condition":
		return &a.Condition
	case "sort":
		return &a.Sort
	case "skip":
		return &a.Skip
	case "limit":
		return &a.Limit
	case "group":
		return &a.Group
	case "having":
		return &a.Having
	case "pipeline":
		return &a.Pipeline
	}
	return nil
}

// argumentNames lists the arguments. $pipeline is read, so that its refusal can say more, and not offered.
func argumentNames(root bool) string {
	if root {
		return "$condition, $sort, $skip, $limit, $group, $having"
	}
	return "$condition, $sort, $skip, $limit"
}

// block reads { item ... }, at the given depth of blocks.
func (p *parser) block(depth int) ([]Item, error) {
	if depth > maxDepth {
		return nil, model.Errorf(model.Parse, "blocks may be nested %d deep; ask for the deeper ones in a query of their own. Write for example: %s", maxDepth, exampleKid)
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	var items []Item
	for !p.token.is("}") {
		if p.token.is(",") {
			if err := p.advance(); err != nil {
				return nil, err
			}
			continue
		}
		item, err := p.item(depth)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, p.advance()
}

// item reads one entry of a block.
func (p *parser) item(depth int) (Item, error) {
	if p.token.kind != id {
		return Item{}, p.unexpected("the name of a field or relation, or }", exampleFields)
	}
	item := Item{Name: p.token.text, At: p.token.at}
	err := p.advance()
	if err == nil && p.token.is("(") {
		item.Called = true
		item.Args, err = p.arguments(false)
	}
	if err == nil && p.token.is("{") {
		item.Called = true
		item.Items, err = p.block(depth + 1)
	}
	return item, err
}
