package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tabellion-mcp/tabellion/internal/rawmcp"
)

// rounds is how often a transfer and its floor are measured; the middle one counts.
const rounds = 3

// measureTransfers sends a file and fetches it again, beside a plain write with a sync and a plain read of the same size
// on the same disk. What is read was dropped from the page cache before, in both.
func measureTransfers(ctx context.Context, o *options) ([]Line, error) {
	s, err := serve(ctx, o, "transfer")
	if err != nil {
		return nil, err
	}
	defer s.Stop(15 * time.Second)
	time.Sleep(time.Second)
	idle := residentKB(s.PID())
	b := &transferBench{o: o, s: s, client: &http.Client{Transport: &http.Transport{
		WriteBufferSize: 1 << 20, ReadBufferSize: 1 << 20, // the generator must not be the bottleneck
	}}, size: int64(o.mib) << 20}
	defer b.client.CloseIdleConnections()
	lines := []Line{b.line("SHA-256 of the bytes, one core", []time.Duration{b.hashing()}, "the server computes it of all that comes and goes")}
	ups, err := b.pairs(ctx, b.floorWrite, b.up)
	if err != nil {
		return nil, err
	}
	downs, err := b.pairs(ctx, b.floorRead, b.down)
	if err != nil {
		return nil, err
	}
	lines = append(lines, b.lines("write and sync a file", "send: PUT until 204", ups)...)
	lines = append(lines, b.lines("read a file", "fetch: GET", downs)...)
	lines = append(lines, b.line("commit: bytes hashed again", b.commits, ""))
	peak := statusKB(s.PID(), "VmHWM:")
	return append(lines, Line{
		Time: now(), Table: "transfer", What: "memory",
		Note: fmt.Sprintf("idle %d MB resident, peak of all transfers %d MB: %+d MB", idle/1024, peak/1024, (peak-idle)/1024),
	}), nil
}

// hashing is how long one core takes for the digest of the file.
func (b *transferBench) hashing() time.Duration {
	h := sha256.New()
	began := time.Now()
	(&source{block: b.block(0), left: b.size}).WriteTo(h)
	return time.Since(began)
}

// now is the time as lines keep it.
func now() string { return time.Now().UTC().Format(time.RFC3339) }

// transferBench holds what the rounds share.
type transferBench struct {
	o         *options
	s         *served
	client    *http.Client
	size      int64
	n         int
	artifacts []artifact
	commits   []time.Duration
}

// artifact is one that was sent.
type artifact struct {
	id   string
	hash string
}

// pair is one round.
type pair struct{ floor, ours time.Duration }

// pairs measures floor and ours in turn.
func (b *transferBench) pairs(ctx context.Context, floor, ours func(context.Context) (time.Duration, error)) ([]pair, error) {
	var out []pair
	for range rounds {
		f, err := floor(ctx)
		if err != nil {
			return nil, err
		}
		t, err := ours(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, pair{f, t})
	}
	return out, nil
}

// lines are the rows of both, with the ratio of their middles.
func (b *transferBench) lines(floorWhat, what string, pairs []pair) []Line {
	var floors, ours []time.Duration
	for _, p := range pairs {
		floors, ours = append(floors, p.floor), append(ours, p.ours)
	}
	f := b.line(floorWhat, floors, "")
	l := b.line(what, ours, "")
	l.Note = fmt.Sprintf("%.2f of the floor", l.MiB/f.MiB)
	return []Line{f, l}
}

// line is the middle of some times as a row.
func (b *transferBench) line(what string, took []time.Duration, note string) Line {
	d := middle(took)
	return Line{Time: now(), Table: "transfer", What: what, Clients: 1, Calls: len(took), MiB: float64(b.size) / (1 << 20) / d.Seconds(), Note: note}
}

// middle is the median.
func middle(took []time.Duration) time.Duration {
	sorted := slices.Clone(took)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

// block is what files are made of. It differs from round to round, so that nothing is stored once only.
func (b *transferBench) block(round int) []byte {
	block := make([]byte, 1<<20)
	seed := sha256.Sum256(fmt.Appendf(nil, "%d %d", round, os.Getpid()))
	for i := range block {
		block[i] = seed[i%32] ^ byte(i>>5) ^ byte(i>>13)
	}
	return block
}

// source gives the file of a round without a disk.
type source struct {
	block []byte
	left  int64
	at    int
}

// Read gives the next bytes.
func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), s.left)], s.block[s.at:])
	s.at = (s.at + n) % len(s.block)
	s.left -= int64(n)
	return n, nil
}

// WriteTo gives the bytes in whole blocks.
func (s *source) WriteTo(w io.Writer) (sent int64, err error) {
	for s.left > 0 && err == nil {
		piece := s.block[s.at:min(int64(len(s.block)), int64(s.at)+s.left)]
		var n int
		n, err = w.Write(piece)
		sent += int64(n)
		s.at = (s.at + n) % len(s.block)
		s.left -= int64(n)
	}
	return sent, err
}

// floorWrite writes a file of the size in pieces of 1 MiB and syncs it.
func (b *transferBench) floorWrite(context.Context) (time.Duration, error) {
	path := filepath.Join(b.o.dir, "floor")
	os.Remove(path)
	block := b.block(-1)
	unix.Sync() // what others wrote is not counted
	began := time.Now()
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	for range b.o.mib {
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
	}
	err = errors.Join(f.Sync(), f.Close())
	return time.Since(began), err
}

// floorRead reads the file of floorWrite, which the page cache does not hold.
func (b *transferBench) floorRead(context.Context) (time.Duration, error) {
	path := filepath.Join(b.o.dir, "floor")
	if err := forget(path); err != nil {
		return 0, err
	}
	began := time.Now()
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for {
		_, err := f.Read(buf)
		if err == io.EOF {
			return time.Since(began), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// forget drops a file from the page cache.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// call calls a tool and gives its structured content.
func (b *transferBench) call(ctx context.Context, tool, args string) (map[string]any, error) {
	c := rawmcp.New("http://"+b.s.addr+"/mcp", b.s.key, false, 1)
	defer c.Close()
	a, err := c.Call(ctx, "persistence."+tool, []byte(args))
	if err != nil {
		return nil, err
	}
	m, ok := a.Structured.(map[string]any)
	if a.IsError || a.RPC != nil || !ok {
		text, _ := json.Marshal(a)
		return nil, fmt.Errorf("%s: %.300s", tool, text)
	}
	return m, nil
}

// up declares a file, sends it, and commits it. The time is that of the sending.
func (b *transferBench) up(ctx context.Context) (time.Duration, error) {
	b.n++
	block := b.block(b.n)
	h := sha256.New()
	io.Copy(h, &source{block: block, left: b.size})
	hash := hex.EncodeToString(h.Sum(nil))
	u, err := b.call(ctx, "beginArtifact", fmt.Sprintf(`{"namespace":"bench","mimeType":"application/octet-stream","size":%d,"hash":{"algorithm":"sha256","value":%q},"provenance":null,"idempotencyKey":"b%d"}`, b.size, hash, b.n))
	if err != nil {
		return 0, err
	}
	unix.Sync()
	began := time.Now()
	if err := b.send(ctx, fmt.Sprint(u["uploadId"]), &source{block: block, left: b.size}); err != nil {
		return 0, err
	}
	took := time.Since(began)
	began = time.Now()
	if _, err := b.call(ctx, "commitArtifact", fmt.Sprintf(`{"namespace":"bench","uploadId":%q,"idempotencyKey":"c%d"}`, u["uploadId"], b.n)); err != nil {
		return 0, err
	}
	b.commits = append(b.commits, time.Since(began))
	b.artifacts = append(b.artifacts, artifact{fmt.Sprint(u["artifactId"]), hash})
	return took, nil
}

// send is one PUT.
func (b *transferBench) send(ctx context.Context, upload string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+b.s.addr+"/uploads/bench/"+upload, body)
	if err != nil {
		return err
	}
	req.ContentLength = b.size
	req.Header.Set("Authorization", "Bearer "+b.s.key)
	res, err := b.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 300))
		return fmt.Errorf("PUT: %s: %s", res.Status, text)
	}
	return nil
}

// down fetches an artifact whose bytes the page cache does not hold. It is fetched once more to compare its hash: the
// floor computes none.
func (b *transferBench) down(ctx context.Context) (time.Duration, error) {
	a := b.artifacts[b.n%len(b.artifacts)]
	b.n++
	if err := forget(filepath.Join(b.o.dir, "transfer", "data", "blobs", a.hash[:2], a.hash)); err != nil {
		return 0, err
	}
	took, err := b.fetch(ctx, a, io.Discard)
	if err != nil {
		return 0, err
	}
	h := sha256.New()
	if _, err := b.fetch(ctx, a, h); err != nil {
		return 0, err
	}
	if hex.EncodeToString(h.Sum(nil)) != a.hash {
		return 0, errors.New("GET: other bytes")
	}
	return took, nil
}

// fetch is one GET.
func (b *transferBench) fetch(ctx context.Context, a artifact, to io.Writer) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.s.addr+"/artifacts/bench/"+a.id, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+b.s.key)
	began := time.Now()
	res, err := b.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	buf, n := make([]byte, 1<<20), int64(0)
	for err == nil {
		var k int
		k, err = res.Body.Read(buf)
		n += int64(k)
		to.Write(buf[:k])
	}
	took := time.Since(began)
	if err != io.EOF || n != b.size || res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("GET: %s, %d bytes, %w", res.Status, n, err)
	}
	return took, nil
}
