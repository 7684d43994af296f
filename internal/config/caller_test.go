package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tabellion-mcp/tabellion/internal/config"
)

// TestCaller: without a policy section the local principal has the role admin, unless its roles are set, if to none (middle, D6).
func TestCaller(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       *config.Local
	}{
		{"nobody", "data: d\n", nil},
		{"no policy", "data: d\nauth: {local: {subject: me}}\n", &config.Local{Subject: "me", Roles: []string{"admin"}}},
		{"own roles", "data: d\nauth: {local: {subject: me, roles: [viewer]}}\n", &config.Local{Subject: "me", Roles: []string{"viewer"}}},
		{"no role", "data: d\nauth: {local: {subject: me, roles: []}}\n", &config.Local{Subject: "me", Roles: []string{}}},
		{"no role and a policy", "data: d\nauth: {local: {subject: me, roles: []}}\npolicy: {}\n", &config.Local{Subject: "me", Roles: []string{}}},
		{"a policy", "data: d\nauth: {local: {subject: me}}\npolicy: {}\n", &config.Local{Subject: "me"}},
		{"a policy of nothing", "data: d\nauth: {local: {subject: me}}\npolicy:\n", &config.Local{Subject: "me"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, mustLoad(t, tt.text, config.Source{}).Caller()); d != "" {
				t.Error(d)
			}
		})
	}
}
