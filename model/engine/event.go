package engine

import (
	"errors"

	"github.com/tabellion-mcp/tabellion/model"
)

// tell reports an event to whoever listens to this call.
func (c Call) tell(ev Event) {
	if c.Events != nil {
		c.Events(ev)
	}
}

// told reports the event that goes with a refusal, and returns the refusal.
func (c Call) told(err error) error {
	var e *model.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Class {
	case model.Sandbox:
		c.tell(Event{
			Type: "profile_blocked", Code: "profileBlocked", Layer: "core", Message: e.Error(),
			Hint:   "write the query without this feature",
			Detail: map[string]any{"profile": c.Profile.Name, "feature": e.Feature},
		})
	case model.Pushdown:
		c.tell(Event{Type: "sql_pushdown_unsupported", Code: "pushdownUnsupported", Layer: "core", Message: e.Error()})
	}
	return err
}

// dropped reports fields that were left out of a write because the caller may not write them.
func (c Call) dropped(name string, fields []string) {
	c.tell(Event{
		Type: "fields_dropped", Code: "fieldsDropped", Layer: "core",
		Message: "fields of " + name + " that this caller may not write were left out",
		Hint:    "leave them out of the data",
		Detail:  map[string]any{"model": name, "fields": fields},
	})
}

// skipped reports a relation whose data was left out of a mutation.
func (c Call) skipped(name, relation string) {
	c.tell(Event{
		Type: "mutation_degraded", Code: "relationSkipped", Layer: "core",
		Message: "the data of the relation " + name + "." + relation + " was left out: this caller may not read it",
		Hint:    "leave it out of the data",
		Detail:  map[string]any{"model": name, "relation": relation},
	})
}
