package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary the program itself, for scripts and for tests that start processes.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tabellion": main})
}

// TestScripts runs testdata/script. Beside the standard commands there are:
//
//	run CODE ARGS...             runs tabellion and wants this exit code
//	start NAME ARGS...           starts tabellion in the background; its output goes to NAME.out and NAME.err
//	ready NAME                   waits until the server of the script answers on $OPS
//	until FILE TEXT              waits until the file holds the text
//	end NAME  SIGNAL CODE        sends a signal (none: waits) and wants this exit code
//	complete WANT WORDS...       asks the bash script c.bash for completions of the last word; WANT is all of them
//	call STATUS KEY TOOL JSON    calls a tool over HTTP on $LISTEN; the answer goes to the file answer. KEY - sends none, @FILE reads it
//	get STATUS URL [HOST]        gets a page into the file answer; @FILE/PATH reads the URL's beginning
//	sqlite FILE SQLFILE          runs the statements of a file on an SQLite database, which is made when it is missing
//	untilrun REGEXP ARGS...      runs tabellion until its output matches
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			listen, ops := freeAddress(), freeAddress()
			e.Setenv("LISTEN", listen)
			e.Setenv("OPS", ops)
			e.Setenv("HOME", e.WorkDir)
			examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
			if err != nil {
				return err
			}
			e.Setenv("EXAMPLES", examples)
			s := &script{running: map[string]*exec.Cmd{}}
			e.Values[scriptKey{}] = s
			e.Defer(s.killAll)
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"run": runCommand, "start": startCommand, "ready": readyCommand, "until": untilCommand,
			"complete": completeCommand, "untilrun": untilRunCommand,
			"end": endCommand, "call": callCommand, "get": getCommand, "sqlite": sqliteCommand,
		},
	})
}

// script is the state of one script.
type script struct{ running map[string]*exec.Cmd }

// scriptKey finds it.
type scriptKey struct{}

// killAll ends what a script left running.
func (s *script) killAll() {
	for _, c := range s.running {
		c.Process.Kill()
		c.Wait()
	}
}

// freeAddress is a loopback address that was free a moment ago.
func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// runCommand implements run.
func runCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: run CODE ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec("tabellion", args[1:]...)
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// sqliteCommand implements sqlite.
func sqliteCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sqlite FILE SQLFILE")
	}
	file := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(file), 0o700))
	db, err := sql.Open("sqlite", "file:"+file)
	ts.Check(err)
	_, err = db.Exec(ts.ReadFile(args[1]))
	ts.Check(errors.Join(err, db.Close()))
}

// startCommand implements start.
func startCommand(ts *testscript.TestScript, neg bool, args []string) {
	name := args[0]
	c := exec.Command("tabellion", args[1:]...)
	c.Dir = ts.MkAbs(".")
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + ts.Getenv("HOME")}
	var err error
	c.Stdout, err = os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	c.Stderr, err = os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	ts.Check(c.Start())
	ts.Value(scriptKey{}).(*script).running[name] = c
}

// patience bounds every wait of a script.
const patience = 30 * time.Second

// wait polls until done, or fails with words.
func wait(ts *testscript.TestScript, done func() bool, format string, args ...any) {
	for end := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf(format, args...)
		}
	}
}

// readyCommand implements ready.
func readyCommand(ts *testscript.TestScript, neg bool, args []string) {
	wait(ts, func() bool {
		res, err := http.Get("http://" + ts.Getenv("OPS") + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	}, "%s does not get ready: %s", args[0], read(ts, args[0]+".err"))
}

// read gives a file of the script, "" when it is missing.
func read(ts *testscript.TestScript, name string) string {
	text, _ := os.ReadFile(ts.MkAbs(name))
	return string(text)
}

// untilCommand implements until.
func untilCommand(ts *testscript.TestScript, neg bool, args []string) {
	wait(ts, func() bool { return strings.Contains(read(ts, args[0]), args[1]) }, "%s never holds %q:\n%s", args[0], args[1], read(ts, args[0]))
}

// endCommand implements end.
func endCommand(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(scriptKey{}).(*script)
	c := s.running[args[0]]
	delete(s.running, args[0])
	if sig, ok := map[string]syscall.Signal{"INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[args[1]]; ok {
		ts.Check(c.Process.Signal(sig))
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case <-done:
	case <-time.After(patience):
		c.Process.Kill()
		ts.Fatalf("%s does not end", args[0])
	}
	if got := c.ProcessState.ExitCode(); strconv.Itoa(got) != args[2] {
		ts.Fatalf("%s ended with %d, want %s\n%s", args[0], got, args[2], read(ts, args[0]+".err"))
	}
}

// callCommand implements call.
func callCommand(ts *testscript.TestScript, neg bool, args []string) {
	status, key, tool, arguments := args[0], args[1], args[2], args[3]
	if file, ok := strings.CutPrefix(key, "@"); ok {
		key = strings.TrimSpace(read(ts, file))
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`, tool, arguments)
	req, err := http.NewRequest("POST", "http://"+ts.Getenv("LISTEN")+"/mcp", strings.NewReader(body))
	ts.Check(err)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		req.Header.Set(name, value)
	}
	if key != "-" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	fetch(ts, req, status)
}

// getCommand implements get.
func getCommand(ts *testscript.TestScript, neg bool, args []string) {
	url := args[1]
	if file, ok := strings.CutPrefix(url, "@"); ok {
		file, path, _ := strings.Cut(file, "/")
		url = strings.TrimSpace(read(ts, file)) + "/" + path
	}
	req, err := http.NewRequest("GET", url, nil)
	ts.Check(err)
	if len(args) > 2 {
		req.Host = args[2]
	}
	fetch(ts, req, args[0])
}

// fetch sends a request and keeps the answer.
func fetch(ts *testscript.TestScript, req *http.Request, status string) {
	res, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	ts.Check(err)
	var indented bytes.Buffer
	if json.Indent(&indented, text, "", " ") != nil {
		indented = *bytes.NewBuffer(text)
	}
	ts.Check(os.WriteFile(ts.MkAbs("answer"), indented.Bytes(), 0o600))
	if strconv.Itoa(res.StatusCode) != status {
		ts.Fatalf("status %d, want %s: %s", res.StatusCode, status, text)
	}
}

// completeCommand implements complete.
func completeCommand(ts *testscript.TestScript, neg bool, args []string) {
	words := append([]string{"tabellion"}, args[1:]...)
	ask := `source ./c.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tabellion; echo "${COMPREPLY[@]}"`
	ts.Check(ts.Exec("bash", append([]string{"-c", ask, "bash"}, words...)...))
	if got := strings.TrimSpace(ts.ReadFile("stdout")); got != args[0] {
		ts.Fatalf("got %q, want %q", got, args[0])
	}
}

// untilRunCommand implements untilrun.
func untilRunCommand(ts *testscript.TestScript, neg bool, args []string) {
	want := regexp.MustCompile("(?m)" + args[0])
	wait(ts, func() bool {
		ts.Check(ts.Exec("tabellion", args[1:]...))
		return want.MatchString(ts.ReadFile("stdout"))
	}, "the output never matches %s", args[0])
}
