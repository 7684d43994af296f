package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a configuration file. A policy of a thousand assignments stays inside them.
const (
	maxFileBytes = 256 << 10
	maxTokens    = 50_000
	maxDepth     = 32
	maxNodes     = 50_000 // counted after aliases are expanded
)

// kind is what a node is.
type kind uint8

// The kinds.
const (
	kindNull kind = iota
	kindText
	kindBool
	kindInteger
	kindNumber
	kindList
	kindMap
)

// String names the kind for messages.
func (k kind) String() string {
	return [...]string{"nothing", "a text", "a yes/no value", "a whole number", "a number", "a list", "a section"}[k]
}

// node is a value of the file with its place. Aliases are expanded and anchors gone.
type node struct {
	at      origin
	kind    kind
	text    string // of scalars, as written
	items   []node
	members []member
}

// member is one key of a section.
type member struct {
	name  string
	at    origin
	value node
}

// parse reads one YAML document into a tree, within the bounds. An empty file is an empty section.
func parse(file string, text []byte) (node, error) {
	r := &treeReader{file: file, anchors: map[string]ast.Node{}}
	if len(text) > maxFileBytes {
		return node{}, r.whole("the file has more than %d bytes", maxFileBytes)
	}
	if !utf8.Valid(text) {
		return node{}, r.whole("the file is not UTF-8")
	}
	tokens := lexer.Tokenize(string(text))
	if p := r.bound(tokens); p != nil {
		return node{}, Problems{*p}
	}
	f, err := parser.Parse(tokens, 0)
	if err != nil {
		return node{}, r.syntax(err)
	}
	switch {
	case len(f.Docs) > 1:
		return node{}, r.whole("the file holds several documents; one is expected")
	case len(f.Docs) == 0 || f.Docs[0].Body == nil:
		return node{at: origin{file, 1, 1}, kind: kindMap}, nil
	}
	n := r.read(f.Docs[0].Body, 0)
	return n, r.problems.sorted()
}

// treeReader turns the library's tree into nodes.
type treeReader struct {
	file     string
	anchors  map[string]ast.Node
	nodes    int
	full     bool // the bound of nodes was passed and reported
	problems Problems
}

// whole is a problem of the file as a whole.
func (r *treeReader) whole(format string, args ...any) error {
	return Problems{{at: origin{where: r.file}, Message: fmt.Sprintf(format, args...)}}
}

// syntax gives the library's error its place in our form, without the excerpt of the file.
func (r *treeReader) syntax(err error) error {
	at, message := origin{where: r.file}, err.Error()
	var located interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if errors.As(err, &located) {
		message = located.GetMessage()
		if tk := located.GetToken(); tk != nil && tk.Position != nil {
			at.line, at.column = tk.Position.Line, tk.Position.Column
		}
	}
	return Problems{{at: at, Message: message}}
}

// bound refuses too many tokens and deep brackets before the parser sees them: its work grows with their square.
func (r *treeReader) bound(tokens token.Tokens) *Problem {
	if len(tokens) > maxTokens {
		return &Problem{at: origin{where: r.file}, Message: fmt.Sprintf("the file has more than %d tokens", maxTokens)}
	}
	depth := 0
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		}
		if depth > maxDepth {
			return &Problem{at: r.at(t), Message: fmt.Sprintf("nested deeper than %d levels", maxDepth)}
		}
	}
	return nil
}

// at is the place of a token.
func (r *treeReader) at(t *token.Token) origin {
	if t == nil || t.Position == nil {
		return origin{where: r.file}
	}
	return origin{r.file, t.Position.Line, t.Position.Column}
}

// complain records a problem at n.
func (r *treeReader) complain(n ast.Node, format string, args ...any) {
	r.problems = append(r.problems, Problem{at: r.at(n.GetToken()), Message: fmt.Sprintf(format, args...)})
}

// read turns n into a node.
func (r *treeReader) read(n ast.Node, depth int) node {
	out := node{at: r.at(n.GetToken())}
	r.nodes++
	if depth > maxDepth || r.nodes > maxNodes {
		if !r.full {
			r.full = true
			r.complain(n, "nested deeper than %d levels, or more than %d values once aliases are expanded", maxDepth, maxNodes)
		}
		return out
	}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		out.kind, out.text = kindText, n.Value
	case *ast.LiteralNode:
		out.kind, out.text = kindText, n.Value.Value
	case *ast.BoolNode:
		out.kind, out.text = kindBool, n.Token.Value
	case *ast.IntegerNode:
		out.kind, out.text = kindInteger, n.Token.Value
	case *ast.FloatNode:
		out.kind, out.text = kindNumber, n.Token.Value
	case *ast.SequenceNode:
		out.kind = kindList
		for _, v := range n.Values {
			out.items = append(out.items, r.read(v, depth+1))
		}
	case *ast.MappingNode:
		out.kind, out.members = kindMap, r.members(n.Values, depth)
	case *ast.MappingValueNode:
		out.kind, out.members = kindMap, r.members([]*ast.MappingValueNode{n}, depth)
	case *ast.AnchorNode:
		r.anchors[n.Name.GetToken().Value] = n.Value
		return r.read(n.Value, depth)
	case *ast.AliasNode:
		return r.alias(n, depth)
	default:
		r.complain(n, "a %s is not allowed in a configuration", strings.ToLower(n.Type().String()))
	}
	return out
}

// alias expands an alias. An anchor inside its own value never ends and runs into the bounds.
func (r *treeReader) alias(n *ast.AliasNode, depth int) node {
	name := n.Value.GetToken().Value
	target, ok := r.anchors[name]
	if !ok {
		r.complain(n, "alias *%s has no anchor before it", name)
		return node{at: r.at(n.GetToken())}
	}
	out := r.read(target, depth+1)
	out.at = r.at(n.GetToken())
	return out
}

// members reads the keys of a section. Keys are plain texts; a key that stands twice is refused.
func (r *treeReader) members(values []*ast.MappingValueNode, depth int) []member {
	seen := map[string]bool{}
	var out []member
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			r.complain(v.Key, "the key %q is not a plain text", v.Key.String())
			continue
		}
		if seen[key.Value] {
			r.complain(v.Key, "the key %q stands twice", key.Value)
			continue
		}
		seen[key.Value] = true
		out = append(out, member{key.Value, r.at(key.GetToken()), r.read(v.Value, depth+1)})
	}
	return out
}
