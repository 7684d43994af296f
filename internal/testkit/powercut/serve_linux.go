package powercut

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// init turns the process into the serving one when it was started as such. It has to
// happen here, before main, because main is that of whatever test is using the package;
// asking each to call something first would make the one that forgot start itself for ever.
func init() {
	if os.Getenv(serveEnv) != "" {
		os.Exit(serve(os.NewFile(3, "control"), os.NewFile(4, "events")))
	}
}

// host is the state of the serving process.
type host struct {
	mounted *mount
	dir     string
	seed    uint64
	cuts    uint64
	events  *reporter
}

// serve answers requests until the connection closes, then unmounts. The result is an exit code.
func serve(control, events *os.File) int {
	h := &host{events: &reporter{enc: json.NewEncoder(events), dec: json.NewDecoder(events)}}
	dec, enc := json.NewDecoder(control), json.NewEncoder(control)
	for {
		var q request
		if dec.Decode(&q) != nil {
			break // the parent closed or died: both mean the end
		}
		if enc.Encode(h.answer(q)) != nil {
			break
		}
	}
	if h.mounted == nil {
		return 0
	}
	// Detached, it leaves the tree of folders at once; open files fail when this process ends.
	if err := syscall.Unmount(h.dir, syscall.MNT_DETACH); err != nil {
		fmt.Fprintf(os.Stderr, "powercut: unmount %s: %v\n", h.dir, err)
		return 1
	}
	return 0
}

// answer does what one request asks.
func (h *host) answer(q request) response {
	if q.Op == opMount {
		return h.mount(q)
	}
	if h.mounted == nil {
		return response{Err: "not mounted"}
	}
	m := h.mounted
	switch q.Op {
	case opCut:
		images, err := h.cut(q.N, q.Path)
		return response{Err: text(err), Images: images}
	case opFail:
		m.locked(func() {
			m.disk.failures = append(m.disk.failures, failure{q.Call, q.Path, q.N, syscall.Errno(q.Errno)})
		})
	case opReadOnly:
		m.locked(func() { m.readOnly = q.On })
	case opForgive:
		m.locked(func() { m.disk.failures = nil })
	case opHook:
		h.events.set(q.On)
	case opKill:
		m.kill()
	case opCounts:
		var c Counts
		m.locked(func() {
			c = m.disk.counts
			c.Unsynced = len(m.disk.unsynced())
		})
		return response{Counts: c}
	default:
		return response{Err: "unknown request " + q.Op}
	}
	return response{}
}

// text is the text of an error, empty for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// mount mounts an empty disk on q.Path and starts to serve it.
func (h *host) mount(q request) response {
	m := newMount(h.events.report)
	server, err := fuse.NewServer(m, q.Path, &fuse.MountOptions{
		DirectMount: true, DirectMountStrict: true, // no setuid helper
		FsName: "powercut", Name: "powercut",
		AllowOther:         true, // servers under test may run as another user
		Options:            []string{"default_permissions"},
		DisableXAttrs:      true,
		DisableReadDirPlus: true,
		MaxWrite:           1 << 20,
		// All changes come through this kernel, so its cache is right. Dropping it on every
		// change of a time stamp would only disturb mapped files.
		ExplicitDataCacheControl: true,
	})
	if err != nil {
		return response{Err: err.Error(), Unavailable: true}
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		return response{Err: err.Error(), Unavailable: true}
	}
	h.mounted, h.dir, h.seed = m, q.Path, q.Seed
	return response{}
}

// cut writes n images of this moment below into.
func (h *host) cut(n int, into string) ([]Image, error) {
	h.cuts++
	seeds := rand.New(rand.NewPCG(h.seed, h.cuts))
	m := h.mounted
	m.mu.Lock()
	defer m.mu.Unlock()
	var images []Image
	for i := range n {
		image := Image{Kind: kindOf(i), Seed: seeds.Uint64()}
		image.Dir = filepath.Join(into, fmt.Sprintf("cut-%03d-%02d-%s", h.cuts, i, image.Kind))
		var t *tree
		t, image.Detail = m.disk.image(image.Kind, image.rng())
		if err := t.store(image.Dir); err != nil {
			return images, fmt.Errorf("write image %s: %w", image.Dir, err)
		}
		images = append(images, image)
	}
	return images, nil
}

// rng is the source of the choices in an image.
func (i Image) rng() *rand.Rand { return rand.New(rand.NewPCG(i.Seed, 0)) }

// reporter tells the parent of successful syncs and waits until it has taken note.
type reporter struct {
	mu  sync.Mutex
	on  bool
	enc *json.Encoder
	dec *json.Decoder
}

// set turns reports on or off.
func (r *reporter) set(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = on
}

// report passes one sync on. A parent that is gone hears nothing, and nobody misses it.
func (r *reporter) report(path string, dir bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on {
		return
	}
	var confirmed bool
	if r.enc.Encode(syncEvent{path, dir}) != nil || r.dec.Decode(&confirmed) != nil {
		r.on = false
	}
}
