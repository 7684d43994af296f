package gql

import "strings"

// String prints the query in its plain form; Parse of it gives an equal query.
func (q *Query) String() string {
	var b strings.Builder
	b.WriteString(q.Model)
	q.Args.print(&b)
	if len(q.Items) > 0 {
		b.WriteByte(' ')
		printBlock(&b, q.Items)
	}
	return b.String()
}

// printBlock prints { items }.
func printBlock(b *strings.Builder, items []Item) {
	b.WriteString("{ ")
	for i, item := range items {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(item.Name)
		if item.Called && item.Args == (Args{}) && len(item.Items) == 0 {
			b.WriteString("()")
		}
		item.Args.print(b)
		if len(item.Items) > 0 {
			b.WriteByte(' ')
			printBlock(b, item.Items)
		}
	}
	b.WriteString(" }")
}

// print prints the arguments in their fixed order, nothing when there are none.
func (a Args) print(b *strings.Builder) {
	open := "("
	for _, arg := range []struct{ name, ref string }{
		{"condition", a.Condition}, {"sort", a.Sort}, {"skip", a.Skip}, {"limit", a.Limit},
		{"group", a.Group}, {"having", a.Having}, {"pipeline", a.Pipeline},
	} {
		if arg.ref != "" {
			b.WriteString(open + "$" + arg.name + ": @" + arg.ref)
			open = ", "
		}
	}
	if open == ", " {
		b.WriteByte(')')
	}
}

// Relations gives the root's name and, for every entry that was written with arguments or a block, the path to it from
// the root: [Course], [Course lessons], [Course lessons assets]. It is for a first look before anything is resolved.
func (q *Query) Relations() [][]string {
	paths := [][]string{{q.Model}}
	var walk func(prefix []string, items []Item)
	walk = func(prefix []string, items []Item) {
		for _, item := range items {
			if !item.Called {
				continue
			}
			path := append(append([]string(nil), prefix...), item.Name)
			paths = append(paths, path)
			walk(path, item.Items)
		}
	}
	walk(paths[0], q.Items)
	return paths
}
