package main

import (
	"fmt"
	"os"
	"slices"
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
func showModels(lines []modelLine) {
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
			f.table(e, n)
		}
		if len(sizes) == 2 {
			f.growth(e, sizes[0], sizes[1])
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

// aligned is a table for people.
func aligned(title string, header string) *tabwriter.Writer {
	fmt.Println("\n" + title)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, header)
	return w
}

// table shows all ways of all operations on one database.
func (f figures) table(engine string, parents int) {
	w := aligned(fmt.Sprintf("%s, %d parents, %d children; p50 in ms of one client", engine, parents, parents*childrenOf),
		"operation\tfloor\tin process\tof floor\tMCP HTTP\treference\treference / in process\treference / MCP\t")
	for _, op := range modelOperations() {
		at := func(how way) float64 { return f.p50(engine, parents, op.name, how) }
		own, host := at(wayInProcess), at(wayReference)
		if own == 0 && at(wayFloor) == 0 && host == 0 && at(wayHTTP) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", op.name, ms(at(wayFloor)), ms(own), times(own, at(wayFloor)), ms(at(wayHTTP)), ms(host),
			times(host, own), times(host, at(wayHTTP)))
	}
	w.Flush()
}

// growth shows what the larger tables cost more.
func (f figures) growth(engine string, small, large int) {
	w := aligned(fmt.Sprintf("%s, %d times the size: p50 against the smaller tables", engine, large/small), "operation\tfloor\tin process\tMCP HTTP\treference\t")
	for _, op := range modelOperations() {
		var cells []any
		for _, how := range []way{wayFloor, wayInProcess, wayHTTP, wayReference} {
			cells = append(cells, times(f.p50(engine, large, op.name, how), f.p50(engine, small, op.name, how)))
		}
		if slices.ContainsFunc(cells, func(c any) bool { return c != "-" }) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", append([]any{op.name}, cells...)...)
		}
	}
	w.Flush()
}

// missed lists the aims that were not reached.
func (f figures) missed(engines []string, sizes []int) {
	fmt.Println("\nAims that were missed:")
	none := true
	miss := func(format string, args ...any) {
		none = false
		fmt.Printf("  "+format+"\n", args...)
	}
	for _, op := range modelOperations() {
		for _, e := range engines {
			for _, n := range sizes {
				own, host := f.p50(e, n, op.name, wayInProcess), f.p50(e, n, op.name, wayReference)
				if own > 0 && host > 0 && op.aim > 0 && host/own < op.aim {
					miss("%s, %s, %d parents: %.1f times the reference, %.0f wanted", op.name, e, n, host/own, op.aim)
				}
			}
			if !op.page || len(sizes) != 2 {
				continue
			}
			for _, how := range []way{wayInProcess, wayHTTP} {
				small, large := f.p50(e, sizes[0], op.name, how), f.p50(e, sizes[1], op.name, how)
				if small > 0 && large/small > mostGrowth {
					miss("%s, %s, %s: %.2f times at %d times the size (the floor: %s), %.1f allowed", op.name, e, how, large/small, sizes[1]/sizes[0],
						times(f.p50(e, sizes[1], op.name, wayFloor), f.p50(e, sizes[0], op.name, wayFloor)), mostGrowth)
				}
			}
		}
	}
	if none {
		fmt.Println("  none")
	}
}
