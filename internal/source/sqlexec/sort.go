package sqlexec

import (
	"fmt"
	"strings"

	"github.com/tabellion-mcp/tabellion/model"
	"github.com/tabellion-mcp/tabellion/model/plan"
)

// checkSort refuses to sort a large table that no index sorts (models, section 2.9).
func (x *Executor) checkSort(b *plan.Block) error {
	if x.MaxUnindexed <= 0 {
		return nil
	}
	rows, index, unsorted, err := x.Generator.Unsorted(b)
	if err != nil || !unsorted || rows <= x.MaxUnindexed {
		return err
	}
	remedy := "sort by a field that has an index"
	if index != nil {
		remedy = fmt.Sprintf("ask the operator for an index on %s, or sort by a field that has one", strings.Join(index, " and "))
	}
	return model.Errorf(model.Limit, "%s has about %d rows, and no index gives them in this order; at most %d are sorted without one. Narrow $condition by an equality, %s",
		b.Model.Name, rows, x.MaxUnindexed, remedy)
}
