// Package control lets processes of one machine share a data folder (middle, D8). The process that holds the store
// listens on a socket in the folder, readable by its user only. Others, finding the folder locked, call the owner's
// gate over it, or relay a whole MCP session:
//
//	l, err := control.Listen(dir, control.Config{Run: gate.Run, Stdio: mcp.ServeStdio, About: about, Log: log})
//	defer l.Close(ctx)
//
//	out, err := control.Run(ctx, dir, who, "operator.keys.list", canonjson.Object()) // in another process
//
// The peer must run as the same user as the owner, or as root: whoever that is could open the folder himself. So the
// peer says who its local principal is, and the owner's policy decides what it may do.
//
// A connection carries one line of JSON each way; a peer that asks for it gets lines of progress before the answer. A
// peer that closes the connection takes its request back: the operation is cancelled. After the answer to a stdio
// request the connection carries MCP, a message a line, until one side closes it.
package control

import (
	"context"
	"io"
	"log/slog"

	"github.com/tabellion-mcp/tabellion/fault"
	"github.com/tabellion-mcp/tabellion/internal/catalog"
	"github.com/tabellion-mcp/tabellion/internal/gate"
	"github.com/tabellion-mcp/tabellion/internal/identity"
)

// version of what is spoken on the socket. A peer of another version is refused with words for a person.
const version = 1

// maxLine bounds one line of a request or an answer; a page of keys fits.
const maxLine = 4 << 20

// What a peer may ask for.
const (
	doAbout = "about" // who the owner is
	doRun   = "run"   // one operation
	doStdio = "stdio" // an MCP session on this connection
)

// Who is the local principal that a peer claims to be.
type Who struct {
	Subject string   `json:"subject"`
	Roles   []string `json:"roles,omitempty"`
}

// About tells who owns the data folder.
type About struct {
	PID     int    `json:"pid"`
	Address string `json:"address,omitempty"` // of its MCP endpoints; "" when it serves stdio only
	Version string `json:"version,omitempty"`
	// ToolNames is how tool names are written in its sessions: a session that joins, and goes on by itself later, has
	// these throughout. "" when the owner does not say.
	ToolNames catalog.Names `json:"toolNames,omitempty"`
	// Models is a digest of the configuration of its models; "" when it serves none.
	Models string `json:"models,omitempty"`
}

// request is the first line of a connection.
type request struct {
	Control   int              `json:"control"`
	Do        string           `json:"do"`
	Who       Who              `json:"who"`
	Operation string           `json:"operation,omitempty"`
	Input     jsonText         `json:"input,omitempty"`
	Progress  bool             `json:"progress,omitempty"` // lines of progress may come before the answer
	Endpoint  catalog.Endpoint `json:"endpoint,omitempty"`
}

// answer is a line back. It is the last one, but for a line with Progress. Fault is set when the request was refused or
// failed.
type answer struct {
	Control  int           `json:"control"`
	Progress *wireProgress `json:"progress,omitempty"`
	Owner    *About        `json:"owner,omitempty"`
	Result   jsonText      `json:"result,omitempty"`
	Fault    *wireFault    `json:"fault,omitempty"`
}

// wireProgress tells how far an operation is. Total is 0 when it is not known.
type wireProgress struct {
	Done  float64 `json:"done"`
	Total float64 `json:"total,omitempty"`
	Note  string  `json:"note,omitempty"`
}

// wireFault is a fault on the socket.
type wireFault struct {
	Code         fault.Code `json:"code"`
	Message      string     `json:"message"`
	RetryAfterMS int64      `json:"retryAfterMs,omitempty"`
}

// Config is what the owner offers. All fields are required.
type Config struct {
	// Run calls an operation for a local principal.
	Run func(context.Context, gate.Request) gate.Reply
	// Stdio serves one MCP session until its input ends, as mcp.Server.ServeStdio does.
	Stdio func(ctx context.Context, who *identity.Principal, e catalog.Endpoint, in io.Reader, out io.Writer) error
	// About is asked for each time: the address may become known late.
	About func() About
	Log   *slog.Logger
}
