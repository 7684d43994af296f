// Command conformance-control starts tabellion servers for conformance runs, and is an example of a command that does
// so for any other server:
//
//	tabellion conformance persistence --control 'conformance-control /usr/local/bin/tabellion' scenarios/
//
// It is started once for each scenario. It reads lines of JSON from standard input and answers each with one on
// standard output: first {"setup":{...},"callers":[...],"era":"..."}, for which it starts a server on an empty store;
// then, when the scenario changes rights, {"setGrants":[...]}. At the end of standard input it stops the server, removes
// the store and exits. What the server says goes to standard error, which the run shows when something fails.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// question is a line from the run: Setup in the first one, SetGrants in the others.
type question struct {
	Setup     *setup   `json:"setup"`
	Callers   []string `json:"callers"`
	Era       string   `json:"era"` // servers of tabellion speak both
	SetGrants *[]grant `json:"setGrants"`
}

// setup is what a scenario wants of its server.
type setup struct {
	Limits           map[string]int64 `json:"limits"`           // those that differ from the contract's
	RetentionSeconds *int64           `json:"retentionSeconds"` // nil: everything is kept forever
	Mode             string           `json:"mode"`             // policy, or open: nobody is asked for a token
	Grants           []grant          `json:"grants"`
}

// grant gives a caller capabilities on a resource: a path, or everything from a path on (/path/**). Except takes paths
// away from the caller again.
type grant struct {
	As           string   `json:"as"`
	Capabilities []string `json:"capabilities"`
	Resource     string   `json:"resource"`
	Except       []string `json:"except"`
}

// answer is a line to the run.
type answer struct {
	URL      string            `json:"url,omitempty"`
	Transfer string            `json:"transfer,omitempty"`
	Tokens   map[string]string `json:"tokens,omitempty"`
	Error    string            `json:"error,omitempty"`
}

// main talks until standard input ends.
func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: conformance-control TABELLION   (the path of the program; a conformance run starts this command)")
		os.Exit(2)
	}
	if err := talk(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance-control:", err)
		os.Exit(1)
	}
}

// talk answers every line, and cleans up at the end. A signal ends it as the end of the input does.
func talk(program string, in io.Reader, out io.Writer) error {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return err
	}
	s := &server{program: program, dir: dir}
	defer os.RemoveAll(dir)
	defer s.stop()

	lines := make(chan string)
	go func() {
		defer close(lines)
		r := bufio.NewReader(in)
		for {
			line, err := r.ReadString('\n')
			if strings.TrimSpace(line) != "" {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			if err := json.NewEncoder(out).Encode(reply(s, line)); err != nil {
				return err
			}
		case <-signals:
			return nil
		}
	}
}

// reply does what a line asks for.
func reply(s *server, line string) answer {
	var q question
	err := json.Unmarshal([]byte(line), &q)
	switch {
	case err != nil:
	case q.Setup != nil:
		err = s.begin(*q.Setup, q.Callers)
	case q.SetGrants != nil && s.url != "":
		err = s.setGrants(*q.SetGrants)
	default:
		err = errors.New("the first line must hold setup, and later ones setGrants")
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{URL: s.url, Transfer: s.transfer, Tokens: s.tokens}
}
