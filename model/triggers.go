package model

import (
	"regexp"
	"strings"

	"github.com/tabellion-mcp/tabellion/internal/canonjson"
)

// triggers reads and checks the triggers. Nothing runs them; writes of a model that has some are refused.
func (d *definition) triggers() error {
	v := d.v.Get("triggers")
	if v.IsAbsent() {
		return nil
	}
	if v.Kind() != canonjson.KindObject {
		return d.bad("triggers must be an object of lists, by event")
	}
	for _, event := range v.Members() {
		if !contains(triggerEvents, event.Name) {
			return d.bad("triggers: unknown event %s; the events are %s", Quote(event.Name), strings.Join(triggerEvents, ", "))
		}
		if event.Value.Kind() != canonjson.KindArray {
			return d.bad("triggers.%s must be a list", event.Name)
		}
		for _, t := range event.Value.Items() {
			if err := d.trigger(event.Name, t); err != nil {
				return err
			}
			d.m.Triggers = append(d.m.Triggers, Trigger{Event: event.Name, Text: t})
		}
	}
	return nil
}

// badTrigger is an error of a trigger with a stable prefix of its own (models, section 22.1).
func (d *definition) badTrigger(kind, format string, args ...any) *Error {
	e := d.bad(format, args...)
	e.prefix = "ERR_TRIGGER_" + kind + ":"
	return e
}

// trigger checks one trigger.
func (d *definition) trigger(event string, t canonjson.Value) error {
	where := "triggers." + event + ": "
	if t.Kind() != canonjson.KindObject {
		return d.bad("%sa trigger is an object", where)
	}
	if err := d.known(where, t, &triggerPart); err != nil {
		return err
	}
	command, callback := !t.Get("into").IsAbsent() || !t.Get("op").IsAbsent(), !t.Get("fnRef").IsAbsent()
	command = command || !t.Get("data").IsAbsent() || !t.Get("condition").IsAbsent()
	callback = callback || !t.Get("args").IsAbsent()
	switch {
	case command == callback:
		return d.bad("%sa trigger is either a command (into, op, data, condition) or a callback (fnRef, args)", where)
	case !t.Get("cascade").IsAbsent():
		return d.bad("%scascade does not exist: what a trigger writes fires no trigger", where)
	}
	if command {
		if err := d.triggerCommand(where, t); err != nil {
			return err
		}
	} else if t.Get("fnRef").Kind() != canonjson.KindString || t.Get("fnRef").Str() == "" {
		return d.badTrigger("FN_REF", "%sfnRef must be the name of a function", where)
	}
	if err := d.triggerTimes(where, event, t); err != nil {
		return err
	}
	if err := d.onFields(where, event, t.Get("onFields")); err != nil {
		return err
	}
	if w := t.Get("when"); !w.IsAbsent() {
		if err := d.when(where, w, 0); err != nil {
			return err
		}
	}
	return d.placeholders(where, event, t)
}

// triggerCommand checks a trigger that writes.
func (d *definition) triggerCommand(where string, t canonjson.Value) error {
	if t.Get("into").Str() == "" {
		return d.bad("%sinto must be the name of a model", where)
	}
	data, condition := t.Get("data"), t.Get("condition")
	switch op := t.Get("op").Str(); op {
	case "insert":
		if data.Kind() != canonjson.KindObject {
			return d.bad("%sinsert needs data, an object", where)
		}
	case "update":
		if data.Kind() != canonjson.KindObject || condition.Kind() != canonjson.KindObject {
			return d.bad("%supdate needs data and condition, objects", where)
		}
	case "remove":
		if !data.IsAbsent() || condition.Kind() != canonjson.KindObject {
			return d.bad("%sremove needs condition, an object, and takes no data", where)
		}
	default:
		return d.bad("%sop must be insert, update or remove", where)
	}
	return nil
}

// cronPart is one of the five parts of a schedule.
var cronPart = regexp.MustCompile(`^[0-9*,/-]+$`)

// triggerTimes checks cron, which goes with schedules alone.
func (d *definition) triggerTimes(where, event string, t canonjson.Value) error {
	cron := t.Get("cron")
	if (event == "schedule") != (cron.Kind() == canonjson.KindString) {
		return d.bad("%scron is needed on schedule, and allowed only there", where)
	}
	if event != "schedule" {
		return nil
	}
	parts := strings.Fields(cron.Str())
	for _, p := range parts {
		if !cronPart.MatchString(p) {
			return d.bad("%scron takes numbers and * , - / in five fields", where)
		}
	}
	if len(parts) != 5 {
		return d.bad("%scron has %d fields in place of five", where, len(parts))
	}
	return nil
}

// onFields checks which fields an update must change.
func (d *definition) onFields(where, event string, v canonjson.Value) error {
	if v.IsAbsent() {
		return nil
	}
	if event != "update" || v.Kind() != canonjson.KindArray || v.Len() == 0 {
		return d.bad("%sonFields is a list of fields, on update only", where)
	}
	for _, f := range v.Items() {
		if d.fieldNamed(f.Str()) == nil {
			return d.bad("%sonFields: %s", where, d.noField(f.Str()))
		}
	}
	return nil
}

// when checks the condition of a trigger.
func (d *definition) when(where string, v canonjson.Value, depth int) error {
	bad := d.badTrigger("WHEN", "%swhen holds exactly one of eq, ne, gt, gte, lt, lte, in (two operands), and, or, not", where)
	if v.Kind() != canonjson.KindObject || v.Len() != 1 || depth > 16 {
		return bad
	}
	m := v.Members()[0]
	switch m.Name {
	case "eq", "ne", "gt", "gte", "lt", "lte", "in":
		if m.Value.Kind() != canonjson.KindArray || m.Value.Len() != 2 {
			return bad
		}
	case "and", "or":
		if m.Value.Kind() != canonjson.KindArray || m.Value.Len() == 0 {
			return bad
		}
		for _, kid := range m.Value.Items() {
			if err := d.when(where, kid, depth+1); err != nil {
				return err
			}
		}
	case "not":
		return d.when(where, m.Value, depth+1)
	default:
		return bad
	}
	return nil
}

// placeholder is the one form of a placeholder; it is the whole text.
var placeholder = regexp.MustCompile(`^\{\{(now|(root|before)\.[A-Za-z_][A-Za-z0-9_.]*)\}\}$`)

// placeholders checks every text of a trigger that holds braces.
func (d *definition) placeholders(where, event string, v canonjson.Value) error {
	switch v.Kind() {
	case canonjson.KindString:
		s := v.Str()
		if !strings.Contains(s, "{{") {
			return nil
		}
		if !placeholder.MatchString(s) || event == "schedule" && s != "{{now}}" {
			return d.badTrigger("PLACEHOLDER", "%s%s must be the whole text, one of {{root.path}}, {{before.path}}, {{now}}; a schedule has only {{now}}", where, Quote(s))
		}
	case canonjson.KindObject:
		for _, m := range v.Members() {
			if err := d.placeholders(where, event, m.Value); err != nil {
				return err
			}
		}
	case canonjson.KindArray:
		for _, item := range v.Items() {
			if err := d.placeholders(where, event, item); err != nil {
				return err
			}
		}
	}
	return nil
}
