package operator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tabellion-mcp/tabellion/fault"
)

// TestExplainKey: a key has its user, its id and its roles; its scopes and its end decide too. What is explained is what
// the gate decides.
func TestExplainKey(t *testing.T) {
	s := newServer(t)
	create := func(in string) string { return s.run(t, "operator.keys.create", in).At("/key/id").Str() }
	wide := create(`{"user":"ana","name":"n"}`)
	narrow := create(`{"user":"ana","name":"n","only":["operator.read@/operator/keys"]}`)
	watch := create(`{"user":"bob","name":"n","roles":["watch"]}`)
	none := create(`{"user":"bob","name":"n"}`)
	short := create(`{"user":"ana","name":"n","expires":"1h"}`)
	revoked := create(`{"user":"ana","name":"n","roles":["admin"]}`)
	s.run(t, "operator.keys.revoke", `{"id":"`+revoked+`"}`)
	s.clock.Advance(2 * time.Hour)
	for _, tt := range []struct {
		name, subject, capability, path string
		allow                           bool
		rule                            string
	}{
		{"by its user", "key:" + wide, "operator.admin", "/operator/keys", true, "user:ana has role chief"},
		{"inside its scope", "key:" + narrow, "operator.read", "/operator/keys", true, "user:ana has role chief"},
		{"outside its scope", "key:" + narrow, "operator.read", "/operator/health", false, "the scopes of key:" + narrow + " do not cover it: operator.read@/operator/keys"},
		{"another capability", "key:" + narrow, "operator.admin", "/operator/keys", false, "do not cover it"},
		{"by its role", "key:" + watch, "operator.read", "/operator/keys", true, "role:watch has role looker"},
		{"without a role", "key:" + none, "operator.read", "/operator/keys", false, "denied by default"},
		{"expired", "key:" + short, "operator.read", "/operator/keys", false, "key:" + short + " expired at "},
		{"revoked", "key:" + revoked, "operator.read", "/operator/keys", false, "key:" + revoked + " was revoked at "},
		{"the local caller", "local:me", "operator.read", "/operator/keys", true, "role:watch has role looker"},
		{"another local caller", "local:you", "operator.read", "/operator/keys", false, "denied by default"},
		{"a user by name", "user:bob", "operator.read", "/operator/keys", false, "denied by default"},
		{"a role by name", "role:watch", "operator.read", "/operator/keys", true, "role:watch has role looker"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := s.run(t, "operator.policy.explain", fmt.Sprintf(`{"subject":%q,"capability":%q,"path":%q}`, tt.subject, tt.capability, tt.path))
			if got.Get("allow").Bool() != tt.allow || !strings.Contains(got.Get("rule").Str(), tt.rule) {
				t.Errorf("got %s, want %v by %q", got, tt.allow, tt.rule)
			}
		})
	}
	reply := s.try(t, "ana", "operator.policy.explain", `{"subject":"key:000000000000","capability":"operator.read","path":"/operator/keys"}`)
	if reply.Fault == nil || reply.Fault.Code != fault.NotFound {
		t.Errorf("an unknown key: %v", reply.Fault)
	}
}

// TestCreateNotes: roles and scopes that give a new key nothing are noted, and only those.
func TestCreateNotes(t *testing.T) {
	s := newServer(t)
	for _, tt := range []struct {
		in   string
		want []string // parts of the notes, in order
	}{
		{`{"user":"bob","name":"n","roles":["admin"]}`, nil},
		{`{"user":"bob","name":"n","roles":["watch"]}`, nil},
		{`{"user":"bob","name":"n","roles":["watch","crew"]}`, []string{"names role:crew, so the role gives the key nothing."}},
		{`{"user":"bob","name":"n","roles":["chief"]}`, []string{`stands for capabilities; a key has it through an assignment such as {subject: "role:chief", role: chief`}},
		{`{"user":"ana","name":"n","roles":["watch"],"only":["operator.read@/operator/health"]}`, nil},
		{`{"user":"bob","name":"n","roles":["watch"],"only":["operator.read@/operator/**","operator.admin@/operator/keys"]}`, []string{"gives the key anything of operator.admin@/operator/keys"}},
		{`{"user":"bob","name":"n","roles":["admin"],"only":["persistence.read@/x"]}`, nil},
	} {
		var notes []string
		for _, n := range s.run(t, "operator.keys.create", tt.in).Get("notes").Items() {
			notes = append(notes, n.Str())
		}
		ok := len(notes) == len(tt.want)
		for i := 0; ok && i < len(notes); i++ {
			ok = strings.Contains(notes[i], tt.want[i])
		}
		if !ok {
			t.Errorf("%s: got %q, want %q", tt.in, notes, tt.want)
		}
	}
}

// TestNoWorkspaces: they are not part of this version and would keep nothing apart, so a key cannot be made with them.
func TestNoWorkspaces(t *testing.T) {
	s := newServer(t)
	reply := s.try(t, "ana", "operator.keys.create", `{"user":"bob","name":"n","workspaces":["w"]}`)
	if reply.Fault == nil || reply.Fault.Code != fault.UnsupportedFormat || !strings.Contains(reply.Fault.Message, "not part of this version") {
		t.Errorf("got %v", reply.Fault)
	}
}
