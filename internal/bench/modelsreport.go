package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// mostGrowth is how many times more a page may cost on the larger tables.
const mostGrowth = 1.3

// figures finds lines.
type figures []modelLine

// p50 is the median of a measurement in milliseconds, 0 when it was not made.
func (f figures) p50(engine string, parents int, operation string, w way) float64 {
	for _, l := range f {
		if l.Engine == engine && l.Parents == parents && l.Operation == operation && l.Way == w {
			return l.P50
		}
	}
	return 0
}

// showModels prints what was measured, and how it stands to what is aimed at.
func showModels(lines []modelLine, markdown bool) {
	f := figures(lines)
	var engines []string
	var sizes []int
	for _, l := range lines {
		if !slices.Contains(engines, l.Engine) {
			engines = append(engines, l.Engine)
		}
		if !slices.Contains(sizes, l.Parents) {
			sizes = append(sizes, l.Parents)
		}
	}
	for _, e := range engines {
		for _, n := range sizes {
			f.table(e, n).show(markdown)
		}
		if len(sizes) == 2 {
			f.growth(e, sizes[0], sizes[1]).show(markdown)
		}
	}
	f.missed(engines, sizes)
}

// ms spells milliseconds; - for what was not measured.
func ms(v float64) string {
	switch {
	case v == 0:
		return "-"
	case v < 1:
		return fmt.Sprintf("%.3f", v)
	case v < 100:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// times spells a ratio.
func times(a, b float64) string {
	if a == 0 || b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

// sheet is a table for people. Its first row is the header.
type sheet struct {
	title string
	rows  [][]string
}

// show prints a sheet, aligned or as Markdown.
func (t *sheet) show(markdown bool) {
	fmt.Print("\n", t.title, "\n")
	if markdown {
		fmt.Println()
		for i, row := range t.rows {
			fmt.Println("| " + strings.Join(row, " | ") + " |")
			if i == 0 {
				fmt.Println(strings.Repeat("|---", len(row)) + "|")
			}
		}
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range t.rows {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	w.Flush()
}

// allWays are the ways in the order of the tables.
var allWays = []way{wayFloor, wayInProcess, wayHTTP, wayReference}

// table shows all ways of all operations on one database.
func (f figures) table(engine string, parents int) *sheet {
	t := &sheet{
		title: fmt.Sprintf("%s, %d parents, %d children; p50 in ms of one client", engine, parents, parents*childrenOf),
		rows:  [][]string{{"operation", "floor", "in process", "of floor", "MCP HTTP", "reference", "reference / in process", "reference / MCP"}},
	}
	for _, op := range modelOperations() {
		at := func(how way) float64 { return f.p50(engine, parents, op.name, how) }
		if !slices.ContainsFunc(allWays, func(how way) bool { return at(how) > 0 }) {
			continue
		}
		own, host := at(wayInProcess), at(wayReference)
		t.rows = append(t.rows, []string{op.name, ms(at(wayFloor)), ms(own), times(own, at(wayFloor)), ms(at(wayHTTP)), ms(host),
			times(host, own), times(host, at(wayHTTP))})
	}
	return t
}

// growth shows what the larger tables cost more.
func (f figures) growth(engine string, small, large int) *sheet {
	t := &sheet{
		title: fmt.Sprintf("%s, %d times the size: p50 against the smaller tables", engine, large/small),
		rows:  [][]string{{"operation", "floor", "in process", "MCP HTTP", "reference"}},
	}
	for _, op := range modelOperations() {
		row := []string{op.name}
		for _, how := range allWays {
			row = append(row, times(f.p50(engine, large, op.name, how), f.p50(engine, small, op.name, how)))
		}
		if slices.ContainsFunc(row[1:], func(cell string) bool { return cell != "-" }) {
			t.rows = append(t.rows, row)
		}
	}
	return t
}

// missed prints the aims that were not reached.
func (f figures) missed(engines []string, sizes []int) {
	var all []string
	for _, op := range modelOperations() {
		for _, e := range engines {
			all = append(all, f.slow(op, e, sizes)...)
			if op.page && len(sizes) == 2 {
				all = append(all, f.grown(op, e, sizes[0], sizes[1])...)
			}
		}
	}
	if all == nil {
		all = []string{"none"}
	}
	fmt.Print("\nAims that were missed:\n- ", strings.Join(all, "\n- "), "\n")
}

// slow says where an operation is not as many times faster than the reference host as is aimed at.
func (f figures) slow(op operation, engine string, sizes []int) (out []string) {
	for _, n := range sizes {
		own, host := f.p50(engine, n, op.name, wayInProcess), f.p50(engine, n, op.name, wayReference)
		if own > 0 && host > 0 && host/own < op.aim {
			out = append(out, fmt.Sprintf("%s, %s, %d parents: %.1f times the reference, %.0f wanted", op.name, engine, n, host/own, op.aim))
		}
	}
	return out
}

// grown says where a page costs more on the larger tables than is aimed at.
func (f figures) grown(op operation, engine string, small, large int) (out []string) {
	ratio := func(how way) float64 {
		if before := f.p50(engine, small, op.name, how); before > 0 {
			return f.p50(engine, large, op.name, how) / before
		}
		return 0
	}
	for _, how := range []way{wayInProcess, wayHTTP} {
		if r := ratio(how); r > mostGrowth {
			out = append(out, fmt.Sprintf("%s, %s, %s: %.2f times at %d times the size (the floor: %.2f), %.1f allowed",
				op.name, engine, how, r, large/small, ratio(wayFloor), mostGrowth))
		}
	}
	return out
}
