// Command bench measures tabellion against floors on the same disk and in the same run: in process through gate and
// service with the audit trail on, beside append and fsync of the same bytes; over MCP HTTP, with the server in a process
// of its own, in both protocol eras; artifacts up and down, beside writing and reading a file; and a store of many
// documents beside a small one.
//
//	go run ./internal/bench -binary ./tabellion -out bench/run.jsonl
//	go run ./internal/bench models -binary ./tabellion -out bench/run.jsonl
//
// The second form measures data models on SQLite and PostgreSQL, beside hand-written statements and the reference host.
//
// It prints tables and appends one JSON line a measurement to -out. It asserts nothing.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// options are the flags.
type options struct {
	binary  string
	out     string
	dir     string
	seconds float64
	clients []int
	profile string
	mib     int
	large   int
}

// Line is one measurement, as it is kept.
type Line struct {
	Time    string  `json:"time"`
	Table   string  `json:"table"`
	What    string  `json:"what"`
	Era     string  `json:"era,omitempty"`
	Clients int     `json:"clients"`
	Calls   int     `json:"calls"`
	PerSec  float64 `json:"perSecond"`
	P50     float64 `json:"p50ms"`
	P99     float64 `json:"p99ms"`
	Max     float64 `json:"maxms"`
	MiB     float64 `json:"mibPerSecond,omitempty"` // of transfers; the columns above are empty then
	Note    string  `json:"note,omitempty"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "models" {
		if err := benchModels(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(2)
		}
		return
	}
	var o options
	clients := flag.String("clients", "1,4,16,64", "numbers of clients, separated by commas")
	flag.StringVar(&o.binary, "binary", "", "program to measure over HTTP; empty leaves that table out")
	flag.StringVar(&o.out, "out", "", "file that raw lines are appended to")
	flag.StringVar(&o.dir, "dir", "", "folder for the stores that are measured; a temporary one when empty")
	flag.StringVar(&o.profile, "cpuprofile", "", "file for a CPU profile of the measurements in this process")
	flag.IntVar(&o.mib, "mib", 1024, "size of the artifact that is sent and fetched, in MiB")
	flag.IntVar(&o.large, "large", 100_000, "documents of the larger store")
	flag.Float64Var(&o.seconds, "seconds", 3, "length of one measurement")
	flag.Parse()
	for _, n := range strings.Split(*clients, ",") {
		var c int
		fmt.Sscan(n, &c)
		o.clients = append(o.clients, max(1, c))
	}
	if err := run(context.Background(), &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
}

// run measures everything and prints the tables.
func run(ctx context.Context, o *options) error {
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "tabellion-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.dir = dir
	}
	fmt.Println(machine())
	debug.SetGCPercent(serverGC)
	fmt.Printf("in process with the GC percent that a server sets, %d\n", serverGC)
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	inProcess, err := measureInProcess(ctx, o)
	if err != nil {
		return err
	}
	show("In process, through gate and service, audit on; one acknowledged put is one durable commit", inProcess)
	lines := inProcess
	if o.binary != "" {
		overHTTP, err := measureHTTP(ctx, o)
		if err != nil {
			return err
		}
		show("Over MCP HTTP on loopback, server in its own process, rate and concurrency raised by configuration", overHTTP)
		lines = append(lines, overHTTP...)
		transfers, err := measureTransfers(ctx, o)
		if err != nil {
			return err
		}
		show("Artifacts of one file, up and down over HTTP on loopback; the floors write and read a file of the same size on the same disk", transfers)
		lines = append(lines, transfers...)
		large, err := measureLarge(ctx, o)
		if err != nil {
			return err
		}
		show("One client, stores of two sizes", large)
		lines = append(lines, large...)
	}
	return keep(o.out, lines)
}

// serverGC is the GC percent that `serve` chooses.
const serverGC = 400

// machine describes where this runs.
func machine() string {
	cpu := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for _, line := range strings.Split(string(text), "\n") {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				cpu = strings.TrimLeft(name, "\t :")
				break
			}
		}
	}
	kernel, _ := exec.Command("uname", "-sr").Output()
	return fmt.Sprintf("%s, %d cores, %s, %s", cpu, runtime.NumCPU(), strings.TrimSpace(string(kernel)), runtime.Version())
}

// show prints a table.
func show(title string, lines []Line) {
	fmt.Println("\n" + title)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "what\tera\tclients\tcalls/s\tp50 ms\tp99 ms\tmax ms\tnote\t")
	for _, l := range lines {
		if l.MiB > 0 {
			l.Note = fmt.Sprintf("%.0f MiB/s  %s", l.MiB, l.Note)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%.0f\t%.2f\t%.2f\t%.1f\t%s\t\n", l.What, l.Era, l.Clients, l.PerSec, l.P50, l.P99, l.Max, l.Note)
	}
	w.Flush()
}

// keep appends raw lines to a file.
func keep[T any](path string, lines []T) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	e := json.NewEncoder(f)
	if err := e.Encode(map[string]string{"machine": machine(), "time": time.Now().UTC().Format(time.RFC3339)}); err != nil {
		return err
	}
	for _, l := range lines {
		if err := e.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// timed runs call from n workers for the given time and makes a line of it. call gets the worker and the number of
// its call.
func timed(l Line, n int, seconds float64, call func(worker, i int) error) (Line, error) {
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	took := make([][]time.Duration, n)
	start := time.Now()
	end := start.Add(time.Duration(seconds * float64(time.Second)))
	for worker := range n {
		wg.Go(func() {
			for i := 0; time.Now().Before(end) && failed.Load() == nil; i++ {
				began := time.Now()
				if err := call(worker, i); err != nil {
					failed.Store(&err)
					return
				}
				took[worker] = append(took[worker], time.Since(began))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := failed.Load(); err != nil {
		return l, fmt.Errorf("%s at %d clients: %w", l.What, n, *err)
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	ms := func(q float64) float64 {
		return float64(all[min(len(all)-1, int(q*float64(len(all))))].Microseconds()) / 1000
	}
	l.Time, l.Clients, l.Calls = start.UTC().Format(time.RFC3339), n, len(all)
	l.PerSec = float64(len(all)) / elapsed.Seconds()
	l.P50, l.P99, l.Max = ms(0.5), ms(0.99), ms(1)
	return l, nil
}
