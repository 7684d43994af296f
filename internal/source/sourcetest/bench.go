package sourcetest

import (
	"strconv"
	"testing"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// Bench measures the usual plans on 2,000 parents and 10,000 children.
func Bench(b *testing.B, newPlace func(t testing.TB) Place) {
	w := open(b, newPlace(b), family, Options{})
	for i := range 2 {
		w.insert("Team", sequence(i*1000+1000, i*1000+1999, `{"_id":"t#","name":"Team #","lead":"p#"}`))
	}
	for i := range 10 {
		w.insert("Person", sequence(i*1000+10000, i*1000+10999, `{"_id":"p#","team":"t1#","age":#,"name":"Person #","height":1.5,"fit":true}`))
	}
	w.place.Exec(b, `UPDATE "Person" SET team = 't' || (1000 + age % 2000)`)
	w.place.Exec(b, `ANALYZE`)
	read := func(name string, q *plan.Query) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				rows, err := w.source.Read(b.Context(), q)
				if err != nil || len(rows.Rows) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
	block := func(limit int64, change func(*plan.Block)) *plan.Query {
		root := w.block("Team", "_id", "name")
		root.Limit = limit
		change(root)
		return &plan.Query{Root: root, Rows: true}
	}
	people := func(limit int64) *plan.Kid {
		k := w.kid("Team", "people", "_id", "team", "age")
		k.Block.Limit = limit
		k.Block.Order = append([]plan.Order{{By: w.by("Person.age"), Desc: true}}, k.Block.Order...)
		return k
	}
	read("get", block(-1, func(r *plan.Block) { r.Where = w.is("Team._id", plan.EQ, `"t1500"`) }))
	read("list20", block(20, func(*plan.Block) {}))
	read("list1000", block(1000, func(*plan.Block) {}))
	read("kids20", block(20, func(r *plan.Block) { r.Kids = []*plan.Kid{people(-1)} }))
	read("top2", block(20, func(r *plan.Block) { r.Kids = []*plan.Kid{people(2)} }))
	read("agg20", block(20, func(r *plan.Block) { r.Aggs = []*plan.Agg{w.agg("Team", "people", model.Sum, "age")} }))
	read("group", &plan.Query{Rows: true, Root: &plan.Block{Model: w.model("Person"), Limit: -1, Group: &plan.Group{By: []plan.Key{{Name: "fit", Operand: w.by("Person.fit")}}, Aggs: []plan.GroupAgg{{Alias: "n", Op: model.Sum, Field: w.field("Person.age")}}}}})
	write := func(name string, make func(n int) *plan.Write) {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				n++
				if _, err := w.source.Apply(b.Context(), make(n), plan.Commit{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	serial := 0
	row := func() plan.Row {
		serial++
		return plan.Row{{Field: w.field("Badge._id"), Value: canonjson.String("n" + strconv.Itoa(serial))}, {Field: w.field("Badge.rank"), Value: canonjson.Int(1)}}
	}
	write("insert", func(int) *plan.Write {
		return &plan.Write{Kind: plan.Insert, Model: w.model("Badge"), Rows: []plan.Row{row()}}
	})
	write("insert100", func(int) *plan.Write {
		wr := &plan.Write{Kind: plan.Insert, Model: w.model("Badge")}
		for range 100 {
			wr.Rows = append(wr.Rows, row())
		}
		return wr
	})
	write("update", func(n int) *plan.Write {
		return &plan.Write{Kind: plan.Update, Model: w.model("Team"), Where: w.is("Team._id", plan.EQ, `"t1500"`), Set: []plan.Assign{w.set("Team.name", strconv.Quote(strconv.Itoa(n)))}}
	})
}
