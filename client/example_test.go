package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/tabellion-mcp/tabellion/client"
	"github.com/tabellion-mcp/tabellion/client/clienttest"
)

// Two windows write one document. The second meets a conflict, reads, merges, and writes again.
func Example() {
	s := clienttest.New(nil) // your server instead: client.HTTP(url, token)
	defer s.Close()
	ctx := context.Background()
	c, err := client.New(ctx, s.Caller("ana"), client.Options{Transfer: s.TransferURL(), Token: s.Token("ana")})
	if err != nil {
		log.Fatal(err)
	}
	write := func(on int64, payload string) error {
		_, err := c.Put(ctx, client.PutRequest{
			Namespace: "explorer", ID: "checkpoint-1", Kind: "checkpoint", SchemaVersion: "1",
			Payload: json.RawMessage(payload), ExpectedRevision: on,
		})
		return err
	}
	fmt.Println(write(0, `["relief"]`), write(1, `["relief","craters"]`))

	err = write(1, `["relief","dust"]`)
	if errors.Is(err, client.RevisionConflict) {
		head, err := c.Get(ctx, "explorer", "checkpoint-1")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("theirs:", string(head.Payload))
		fmt.Println(write(head.Revision, `["relief","craters","dust"]`))
	}
	// Output:
	// <nil> <nil>
	// theirs: ["relief","craters"]
	// <nil>
}

// An artifact goes up and comes back verified.
func ExampleClient_Upload() {
	s := clienttest.New(nil)
	defer s.Close()
	ctx := context.Background()
	c, err := client.New(ctx, s.Caller("ana"), client.Options{Transfer: s.TransferURL(), Token: s.Token("ana")})
	if err != nil {
		log.Fatal(err)
	}
	a, err := c.Upload(ctx, client.UploadRequest{
		Namespace: "explorer", MimeType: "text/plain", Provenance: json.RawMessage(`{"tool":"capture"}`),
		Body: bytes.NewReader([]byte("abc")),
	})
	if err != nil {
		log.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := c.Download(ctx, a.Namespace, a.ID, &got, nil); err != nil {
		log.Fatal(err) // the bytes must not be used
	}
	fmt.Println(a.Size, a.Hash.Value[:8], got.String())
	// Output: 3 ba7816bf abc
}

// A list is read page by page while the loop goes on.
func ExampleClient_List() {
	s := clienttest.New(nil)
	defer s.Close()
	ctx := context.Background()
	c, err := client.New(ctx, s.Caller("ana"), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []string{"b", "c", "a"} {
		if _, err := c.Put(ctx, client.PutRequest{Namespace: "ns", ID: id, Kind: "note", SchemaVersion: "1"}); err != nil {
			log.Fatal(err)
		}
	}
	for d, err := range c.List(ctx, client.ListRequest{Namespace: "ns", PageSize: 2}) {
		if err != nil {
			log.Fatal(err) // invalid_request after 15 minutes on one page: begin anew
		}
		fmt.Println(d.ID, d.Revision, string(d.Payload))
	}
	// Output:
	// a 1 null
	// b 1 null
	// c 1 null
}

// session is the part of an SDK's session that a Caller needs. In the official SDK for Go it is
//
//	CallTool(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error)
//
// with errors of the protocol as *jsonrpc.Error; the names below stand for those.
type session interface {
	CallTool(ctx context.Context, params *callToolParams) (*callToolResult, error)
}

type callToolParams struct {
	Name      string
	Arguments any
}

type callToolResult struct {
	Content []textContent
	IsError bool
}

type textContent struct{ Text string }

type jsonrpcError struct {
	Code    int64
	Message string
	Data    json.RawMessage
}

func (e *jsonrpcError) Error() string { return e.Message }

// overSession carries a client over a session of an SDK.
type overSession struct{ session }

// CallTool implements client.Caller. It takes the result from the text, which holds the same JSON: an SDK has decoded the
// structured content, and large numbers in it are no longer exact.
func (o overSession) CallTool(ctx context.Context, name string, arguments json.RawMessage) (client.Result, error) {
	res, err := o.session.CallTool(ctx, &callToolParams{Name: name, Arguments: arguments})
	var rpc *jsonrpcError
	switch {
	case errors.As(err, &rpc):
		return client.Result{}, client.FromRPC(int(rpc.Code), rpc.Message, rpc.Data)
	case err != nil:
		return client.Result{}, err // no answer: the client asks again with the same key
	}
	out := client.Result{IsError: res.IsError}
	if len(res.Content) > 0 {
		out.Text = res.Content[0].Text
	}
	return out, nil
}

// anySession is a session of some SDK.
type anySession struct{ s *clienttest.Server }

func (a anySession) CallTool(ctx context.Context, params *callToolParams) (*callToolResult, error) {
	arguments, err := json.Marshal(params.Arguments)
	if err != nil {
		return nil, err
	}
	res, err := a.s.Caller("ana").CallTool(ctx, params.Name, arguments)
	var e *client.Error
	if errors.As(err, &e) {
		return nil, &jsonrpcError{int64(e.RPC), e.Message, nil}
	}
	return &callToolResult{[]textContent{{res.Text}}, res.IsError}, err
}

// Anything that can call a tool can carry a client.
func ExampleCaller() {
	s := clienttest.New(nil)
	defer s.Close()
	ctx := context.Background()
	c, err := client.New(ctx, overSession{anySession{s}}, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Get(ctx, "explorer", "checkpoint-1")
	fmt.Println(errors.Is(err, client.NotFound))
	s.FailRPC("get", -32001, 1)
	_, err = c.Get(ctx, "explorer", "checkpoint-1")
	fmt.Println(errors.Is(err, client.PolicyDenied))
	// Output:
	// true
	// true
}
