package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// modelOptions are the flags of `bench models`.
type modelOptions struct {
	options
	parents    int
	times      int
	rounds     int
	engines    []string
	ways       []string
	only       *regexp.Regexp
	references string // the folder with the scripts of the reference host
	markdown   bool
}

// way is how an operation is carried out.
type way string

// The ways, in the order of the tables.
const (
	wayFloor     way = "floor"
	wayInProcess way = "in process"
	wayHTTP      way = "mcp"
	wayReference way = "reference"
)

// modelLine is one measurement, as it is kept.
type modelLine struct {
	Time      string  `json:"time"`
	Table     string  `json:"table"` // models
	Engine    string  `json:"engine"`
	Parents   int     `json:"parents"` // there are five times as many children
	Operation string  `json:"operation"`
	Way       way     `json:"way"`
	Calls     int     `json:"calls"`
	PerSec    float64 `json:"perSecond"`
	P50       float64 `json:"p50ms"`
	P99       float64 `json:"p99ms"`
	Max       float64 `json:"maxms"`
	Note      string  `json:"note,omitempty"`
}

// benchModels is `bench models`: operations on data models beside hand-written statements on the same rows, on tables of
// two sizes, in process and over MCP HTTP, and beside the reference host.
func benchModels(args []string) error {
	o := modelOptions{}
	f := flag.NewFlagSet("bench models", flag.ExitOnError)
	f.StringVar(&o.binary, "binary", "", "program to measure over HTTP; empty leaves that way out")
	f.StringVar(&o.out, "out", "", "file that raw lines are appended to")
	f.StringVar(&o.dir, "dir", "", "folder for the databases; a temporary one when empty")
	f.StringVar(&o.profile, "cpuprofile", "", "file for a CPU profile of this process; leave the other ways out by -ways")
	f.Float64Var(&o.seconds, "seconds", 0.7, "length of one measurement, in all rounds")
	f.IntVar(&o.rounds, "rounds", 3, "parts of a measurement, between which everything else is measured")
	f.IntVar(&o.parents, "parents", 20_000, "parents of the smaller tables; there are five children to each")
	f.IntVar(&o.times, "times", 10, "how many times larger the larger tables are; 0 leaves them out")
	f.StringVar(&o.references, "reference", "bench/models-reference", "folder with the scripts of the reference host")
	f.BoolVar(&o.markdown, "markdown", false, "print tables as Markdown")
	engines := f.String("engines", "sqlite,postgres", "databases, separated by commas")
	ways := f.String("ways", "floor,in process,mcp,reference", "ways, separated by commas")
	only := f.String("operations", "", "regular expression of the operations to measure; all when empty")
	_ = f.Parse(args) // which ends the program at an error
	o.engines, o.ways = strings.Split(*engines, ","), strings.Split(*ways, ",")
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	return o.run(context.Background())
}

// run measures and prints.
func (o *modelOptions) run(ctx context.Context) (err error) {
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "tabellion-bench-models-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.dir)
	}
	if o.binary != "" { // servers may be started from other folders
		if o.binary, err = filepath.Abs(o.binary); err != nil {
			return err
		}
	}
	fmt.Println(machine())
	debug.SetGCPercent(serverGC)
	worlds, err := o.worlds(ctx)
	defer func() {
		for _, w := range worlds {
			err = errors.Join(err, w.close())
		}
	}()
	if err != nil {
		return err
	}
	stop, err := o.profiled()
	if err != nil {
		return err
	}
	lines, err := o.measure(ctx, worlds)
	stop()
	if err != nil {
		return err
	}
	showModels(lines, o.markdown)
	return keep(o.out, lines)
}

// profiled starts the CPU profile, where one is wanted, and gives what ends it.
func (o *modelOptions) profiled() (stop func(), err error) {
	if o.profile == "" {
		return func() {}, nil
	}
	f, err := os.Create(o.profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}

// wants tells whether a way is measured.
func (o *modelOptions) wants(w way) bool { return slices.Contains(o.ways, string(w)) }

// measure carries out each operation in each way on each database, in rounds: what is compared is measured close together,
// since the machine does other things at other times.
func (o *modelOptions) measure(ctx context.Context, worlds []*modelWorld) ([]modelLine, error) {
	var lines []modelLine
	for _, op := range modelOperations() {
		if !o.only.MatchString(op.name) {
			continue
		}
		var all []*measurement
		for _, w := range worlds {
			all = append(all, o.measurements(w, op)...)
		}
		for round := range o.rounds {
			for _, m := range all {
				if err := m.round(ctx, round, o.seconds/float64(o.rounds)); err != nil {
					return nil, fmt.Errorf("%s, %s: %w", m.line.Operation, m.place(), err)
				}
			}
		}
		if err := agree(op, all); err != nil {
			return nil, err
		}
		for _, m := range all {
			lines = append(lines, m.filled())
		}
	}
	return lines, nil
}

// measurement is one operation on one database in one way.
type measurement struct {
	line    modelLine
	calls   []call
	run     runner
	took    []time.Duration
	elapsed time.Duration
	first   []byte // the answer of the first call
}

// measurements are those of one operation on one database, as far as the ways are there.
func (o *modelOptions) measurements(w *modelWorld, op operation) []*measurement {
	calls := op.calls(w.parents)
	var out []*measurement
	for _, how := range allWays {
		run := w.runner(how, op)
		if run == nil || !o.wants(how) {
			continue
		}
		out = append(out, &measurement{calls: calls, run: run, line: modelLine{
			Time: time.Now().UTC().Format(time.RFC3339), Table: "models", Engine: w.engine, Parents: w.parents, Operation: op.name, Way: how,
		}})
	}
	return out
}

// place says where and how.
func (m *measurement) place() string {
	return fmt.Sprintf("%s with %d parents, %s", m.line.Engine, m.line.Parents, m.line.Way)
}

// tooSlow is how many rounds a call may take and still be measured in the next one. It is so many that a call which had to
// wait for something else on the machine does not stand alone.
const tooSlow = 4

// round measures for some seconds. What is far slower than a round is measured in the first one alone.
func (m *measurement) round(ctx context.Context, n int, seconds float64) error {
	if n > 0 && m.elapsed/time.Duration(len(m.took)) > time.Duration(tooSlow*seconds*float64(time.Second)) {
		return nil
	}
	first, took, elapsed, err := m.run(ctx, seconds, m.calls)
	if err != nil {
		return err
	}
	if n == 0 {
		m.first = first
	}
	m.took, m.elapsed = append(m.took, took...), m.elapsed+elapsed
	return nil
}

// agree is an error when an operation that reads did not give the same rows in all ways on databases of one size.
func agree(op operation, all []*measurement) error {
	if op.write {
		return nil
	}
	wanted := map[int][]byte{}
	for _, m := range all {
		rows, err := spelled(m.first)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", op.name, m.place(), err)
		}
		if other, ok := wanted[m.line.Parents]; ok && string(other) != string(rows) {
			return fmt.Errorf("%s, %s: other rows than in the ways before\n%.300s\n%.300s", op.name, m.place(), rows, other)
		}
		wanted[m.line.Parents] = rows
	}
	return nil
}

// filled is the line of all rounds.
func (m *measurement) filled() modelLine {
	slices.Sort(m.took)
	ms := func(q float64) float64 {
		return float64(m.took[min(len(m.took)-1, int(q*float64(len(m.took))))].Nanoseconds()) / 1e6
	}
	l := m.line
	l.Calls, l.PerSec = len(m.took), float64(len(m.took))/m.elapsed.Seconds()
	l.P50, l.P99, l.Max = ms(0.5), ms(0.99), ms(1)
	return l
}

// runner makes calls for some seconds, after some that do not count. It gives the answer of the first call, and the time of
// each that counts.
type runner func(ctx context.Context, seconds float64, calls []call) (first []byte, took []time.Duration, elapsed time.Duration, err error)

// serially makes a runner of what carries out one call: one after another.
func serially(do func(context.Context, call) ([]byte, error)) runner {
	return func(ctx context.Context, seconds float64, calls []call) (first []byte, took []time.Duration, elapsed time.Duration, err error) {
		length := time.Duration(seconds * float64(time.Second))
		warm := time.Now().Add(length / 10)
		if first, err = do(ctx, calls[0]); err != nil {
			return nil, nil, 0, err
		}
		first = slices.Clone(first)
		n := 1
		for ; time.Now().Before(warm); n++ {
			if _, err := do(ctx, calls[n%len(calls)]); err != nil {
				return nil, nil, 0, err
			}
		}
		start := time.Now()
		for now := start; now.Sub(start) < length; n++ {
			if _, err := do(ctx, calls[n%len(calls)]); err != nil {
				return nil, nil, 0, err
			}
			end := time.Now()
			took = append(took, end.Sub(now))
			now = end
		}
		return first, took, time.Since(start), nil
	}
}
