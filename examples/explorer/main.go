// Command explorer shows how an application keeps its work on a tabellion server: a viewer of planets that saves
// checkpoints, meets a conflict, loses an answer, and writes a mission document with evidence.
//
//	go run ./examples/explorer                                     # against a server in memory
//	go run ./examples/explorer --url http://127.0.0.1:8635/persistence/mcp --token KEY
//
// It prints what it does and what the server answers. story.go is the part to read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/tabellion-mcp/tabellion/client"
	"github.com/tabellion-mcp/tabellion/client/clienttest"
)

func main() {
	if err := run(context.Background(), os.Stdout, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "explorer:", err)
		os.Exit(2)
	}
}

// run reads the flags, connects, and tells the story on out.
func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("explorer", flag.ContinueOnError)
	flags.SetOutput(out)
	endpoint := flags.String("url", "", "MCP endpoint, such as http://127.0.0.1:8635/persistence/mcp; none: a server in memory")
	transfer := flags.String("transfer", "", "transfer origin; none: the origin of --url")
	token := flags.String("token", "", "API key; none: a server that asks for none")
	names := names{}
	flags.StringVar(&names.namespace, "namespace", "explorer", "where checkpoints, views and captures are kept")
	flags.StringVar(&names.missions, "missions", "missions", "where mission documents are kept")
	flags.StringVar(&names.suffix, "run", client.NewKey()[:8], "end of all ids, so that two runs do not meet")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *endpoint == "" {
		s := clienttest.New(nil)
		defer s.Close()
		fmt.Fprintln(out, "No --url: the server is one in memory, and what follows is gone at the end.")
		return tell(ctx, out, s.Caller("explorer"), client.Options{Transfer: s.TransferURL(), Token: s.Token("explorer")}, names)
	}
	if *transfer == "" {
		u, err := url.Parse(*endpoint)
		if err != nil || u.Host == "" {
			return fmt.Errorf("--url %q is no address; give one such as http://127.0.0.1:8635/persistence/mcp", *endpoint)
		}
		*transfer = u.Scheme + "://" + u.Host
	}
	return tell(ctx, out, client.HTTP(*endpoint, *token), client.Options{Transfer: *transfer, Token: *token}, names)
}
