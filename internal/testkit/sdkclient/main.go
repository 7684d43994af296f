// Command sdkclient talks to a server as a stranger would: with the official Go SDK's client and nothing but the URL
// and the key of the printed snippet. It lists the tools, puts a document, meets a conflict, and reads a revision, in
// both protocol eras.
//
//	sdkclient http://127.0.0.1:8635/mcp tbl_...
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sdkclient URL KEY")
		os.Exit(2)
	}
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		if err := visit(ctx, os.Args[1], os.Args[2], version); err != nil {
			fmt.Fprintf(os.Stderr, "sdkclient, protocol %s: %v\n", version, err)
			os.Exit(1)
		}
		cancel()
	}
}

// withKey sends the key with every request.
type withKey struct{ key string }

// RoundTrip adds the header.
func (w withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.key)
	return http.DefaultTransport.RoundTrip(r)
}

// visit does what a first user does.
func visit(ctx context.Context, url, key, version string) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "sdkclient", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: withKey{key}},
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer session.Close()
	tools, err := session.ListTools(ctx, nil)
	if err != nil {
		return fmt.Errorf("tools/list: %w", err)
	}
	id := "from-sdk-" + version
	put := map[string]any{
		"namespace": "explorer", "id": id, "kind": "checkpoint", "schemaVersion": "1", "payload": map[string]any{"body": "Mars"},
		"references": []any{}, "expectedRevision": 0, "idempotencyKey": id + "-1",
	}
	first, err := call(ctx, session, "persistence.put", put)
	if err != nil || first["revision"] != 1.0 {
		return fmt.Errorf("put: %v %v", err, first)
	}
	put["idempotencyKey"] = id + "-2"
	second, err := call(ctx, session, "persistence.put", put)
	inner, _ := second["error"].(map[string]any)
	if err != nil || inner["code"] != "revision_conflict" {
		return fmt.Errorf("second create: %v %v, want revision_conflict", err, second)
	}
	read, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: "persistence://documents/explorer/" + id + "/revisions/1"})
	if err != nil {
		return fmt.Errorf("resources/read: %w", err)
	}
	fmt.Printf("Go SDK client, protocol %s: %d tools, put gave revision 1, second create: %v, read back %s\n",
		version, len(tools.Tools), inner["message"], read.Contents[0].Text)
	return nil
}

// call gives the structured content of a tool call.
func call(ctx context.Context, s *mcp.ClientSession, tool string, args map[string]any) (map[string]any, error) {
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(res.StructuredContent)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	return m, json.Unmarshal(text, &m)
}
