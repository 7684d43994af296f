package clienttest_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/tabellion-mcp/tabellion"
	"github.com/tabellion-mcp/tabellion/client"
	"github.com/tabellion-mcp/tabellion/client/clienttest"
	"github.com/tabellion-mcp/tabellion/internal/canonjson"
	"github.com/tabellion-mcp/tabellion/policy"
	"github.com/tabellion-mcp/tabellion/storetest"
)

func TestSuite(t *testing.T) {
	storetest.RunClient(t, storetest.ClientSuite{Open: func(t *testing.T) storetest.ClientServer {
		s := clienttest.New(t)
		s.Forbid("nobody", "/persistence/**")
		return storetest.ClientServer{Caller: s.Caller, Transfer: s.TransferURL(), Token: s.Token}
	}})
}

// TestSuiteOverHTTP runs the same suite against the server itself: real keys, a real policy, a data folder, and the tools
// over Streamable HTTP.
func TestSuiteOverHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers: run by make test")
	}
	storetest.RunClient(t, storetest.ClientSuite{Open: openServer})
}

// openServer starts a server in which alice may do everything.
func openServer(t *testing.T) storetest.ClientServer {
	t.Helper()
	cfg := tabellion.DefaultConfig()
	cfg.Data, cfg.Ops = t.TempDir(), ""
	cfg.Transfer.Listen = "127.0.0.1:0"
	cfg.Limits.Rate = 0
	cfg.Auth.Keys = true
	cfg.Policy = &policy.Config{
		Roles:       map[string][]string{"all": {"persistence.read", "persistence.write", "persistence.delete", "persistence.admin"}},
		Assignments: []policy.Assignment{{Subject: "user:alice", Role: "all", On: "/persistence/**"}},
	}
	s, err := tabellion.Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	tools, files := httptest.NewServer(s.Handler()), httptest.NewServer(s.TransferHandler())
	t.Cleanup(func() {
		tools.Close()
		files.Close()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	keys := map[string]string{"": "", "alice": makeKey(t, s, "alice"), "nobody": makeKey(t, s, "nobody")}
	return storetest.ClientServer{
		Caller:   func(as string) client.Caller { return client.HTTP(tools.URL+"/persistence/mcp", keys[as]) },
		Transfer: files.URL,
		Token:    func(as string) string { return keys[as] },
	}
}

// makeKey makes an API key of a user.
func makeKey(t *testing.T, s *tabellion.Server, user string) string {
	t.Helper()
	out, err := s.Call(t.Context(), "test", []string{policy.RoleAdmin}, "operator.keys.create", canonjson.Object(
		canonjson.M("user", canonjson.String(user)), canonjson.M("name", canonjson.String("client"))))
	if err != nil {
		t.Fatal(err)
	}
	return out.Get("secret").Str()
}
