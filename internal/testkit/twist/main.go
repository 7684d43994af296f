// Command twist is a control command for conformance runs whose servers break one rule. It runs another control command
// and puts a proxy in front of each server that this one starts:
//
//	twist FAULT COMMAND...
//
// Runs must notice every fault but "none", which shows that the proxy itself breaks nothing.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// twists are the faults, as changes of answers.
var twists = map[string]func(*http.Response) error{
	"none": func(*http.Response) error { return nil },
	// Who may not read learns what exists.
	"absent-for-denied": func(r *http.Response) error {
		if r.StatusCode == http.StatusForbidden {
			r.StatusCode = http.StatusNotFound
		}
		return nil
	},
	// A file that is cut looks whole.
	"short-file": func(r *http.Response) error {
		if isFile(r) {
			return body(r, func(b []byte) []byte { return b[:max(len(b)-1, 0)] })
		}
		return nil
	},
	// A file breaks off before its announced end.
	"broken-file": func(r *http.Response) error {
		if isFile(r) {
			length := r.Header.Get("Content-Length")
			err := body(r, func(b []byte) []byte { return b[:max(len(b)-1, 0)] })
			r.Header.Set("Content-Length", length)
			return err
		}
		return nil
	},
	// A result holds what its schema does not know, in both of its forms alike.
	"odd-result": func(r *http.Response) error {
		if r.Request.URL.Path != "/mcp" {
			return nil
		}
		return body(r, func(b []byte) []byte {
			b = bytes.ReplaceAll(b, []byte(`"createdAt":"`), []byte(`"odd":1,"createdAt":"`))
			return bytes.ReplaceAll(b, []byte(`\"createdAt\":\"`), []byte(`\"odd\":1,\"createdAt\":\"`))
		})
	},
}

// isFile tells whether an answer is an artifact's bytes.
func isFile(r *http.Response) bool {
	return r.StatusCode == http.StatusOK && strings.HasPrefix(r.Request.URL.Path, "/artifacts/")
}

// body changes the body of an answer, and its length with it.
func body(r *http.Response, change func([]byte) []byte) error {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	text = change(text)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	r.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}

// proxy listens in front of a server and gives the URL of the same path.
func proxy(target string, twist func(*http.Response) error) (string, error) {
	u, err := url.Parse(target)
	if err != nil {
		return "", err
	}
	path := u.Path
	u.Path = ""
	front := httptest.NewServer(&httputil.ReverseProxy{ // ends with this process
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(u) },
		ModifyResponse: twist,
	})
	return front.URL + path, nil
}

// main runs the other command and changes the URLs of its answers.
func main() {
	if len(os.Args) < 3 || twists[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: twist FAULT COMMAND...")
		os.Exit(2)
	}
	if err := run(twists[os.Args[1]], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "twist:", err)
		os.Exit(1)
	}
}

// run passes lines on until the command ends.
func run(twist func(*http.Response) error, command []string) error {
	c := exec.Command(command[0], command[1:]...)
	c.Stdin, c.Stderr = os.Stdin, os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var a map[string]any
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return err
		}
		for _, name := range []string{"url", "transfer"} {
			if s, ok := a[name].(string); ok {
				if a[name], err = proxy(s, twist); err != nil {
					return err
				}
			}
		}
		if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
			return err
		}
	}
	return c.Wait()
}
