package powercut

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Units of the model.
const (
	// pageBytes is the unit in which the kernel writes file data back: a page is on the
	// disk as it was at one moment, unless that very write was torn.
	pageBytes = 4096
	// sectorBytes is the unit a disk writes without tearing.
	sectorBytes = 512
	// maxFileBytes bounds one file, which lives in memory. Larger ones get EFBIG.
	maxFileBytes = 1 << 30
	// sweepAfter is the number of nodes, over twice those in use, that starts a search for
	// forgettable ones.
	sweepAfter = 64
)

// Type bits of a mode, as stat reports them. A socket is a name that leads to a process: no image holds it.
const (
	modeType    = 0o170000
	modeFolder  = 0o040000
	modeRegular = 0o100000
	modeSocket  = 0o140000
)

// ino names a file or folder for as long as the file system lives. Numbers are not used twice.
type ino uint64

// rootIno is the mounted folder itself; FUSE fixes the number.
const rootIno ino = 1

// node is a file or a folder, with what processes see of it and what the disk holds of it.
type node struct {
	id       ino
	mode     uint32 // type and permission bits; not part of the durability model
	uid, gid uint32
	times    nodeTimes

	parent ino    // folder of the last name
	name   string // last name; kept after an unlink, so that syncs can still be reported
	linked bool   // has a name that processes see

	data  []byte         // what processes read
	names map[string]ino // what processes list; nil for files

	durData  []byte         // what survives of the content
	durNames map[string]ino // what survives of the names; nil for files
	pending  []*op          // unsynced changes of the content, oldest first
	lost     map[int64]bool // pages whose unsynced content a failed sync threw away

	lookups uint64 // references held by the kernel
	opens   int    // open handles
}

// nodeTimes are the stamps stat reports. They are not part of the durability model.
type nodeTimes struct{ access, modify, change time.Time }

// isFolder reports whether n can hold names.
func (n *node) isFolder() bool { return n.mode&modeType == modeFolder }

// op is one change that no sync has covered yet: either of a file's content (file is set)
// or of names (edits is set).
type op struct {
	seq uint64 // place in the order of all operations

	file     ino
	truncate bool  // set the length to off, instead of writing
	off      int64 // of a write, or the new length
	length   int64 // of a write
	data     []byte
	// A write whose data is nil only extends the file: its content was lost in a failed sync.

	edits []edit
	// needs are folders whose earlier changes come to the disk no later than this one: those
	// edited, one that goes away, and those on the way to a rename's destination.
	needs []ino
}

// editsAny reports whether o changes a name in one of the folders.
func (o *op) editsAny(folders map[ino]bool) bool {
	return slices.ContainsFunc(o.edits, func(e edit) bool { return folders[e.dir] })
}

// edit binds a name in a folder to a node; target 0 removes it. The edits of one op
// happen together or not at all.
type edit struct {
	dir    ino
	name   string
	target ino
}

// failure is a planned error of one call.
type failure struct {
	call   Call
	suffix string
	after  int // matching calls left, this one included
	errno  syscall.Errno
}

// disk is the model: the tree that processes see, the tree that would survive a power
// cut, and the changes between the two. It knows nothing of FUSE. Callers serialise.
type disk struct {
	nodes    map[ino]*node
	lastIno  ino
	seq      uint64
	names    []*op // unsynced changes of names, oldest first
	sweepAt  int   // number of nodes at which to look for forgettable ones
	failures []failure
	counts   Counts
	now      func() time.Time
}

// newDisk returns a disk whose empty root folder is durable.
func newDisk() *disk {
	d := &disk{nodes: map[ino]*node{}, sweepAt: sweepAfter, now: time.Now}
	root := d.newNode(modeFolder | 0o755)
	root.linked = true
	return d
}

// newNode adds a node that has no name yet.
func (d *disk) newNode(mode uint32) *node {
	d.lastIno++
	t := d.now()
	n := &node{id: d.lastIno, mode: mode, times: nodeTimes{t, t, t}}
	if n.isFolder() {
		n.names, n.durNames = map[string]ino{}, map[string]ino{}
	}
	d.nodes[n.id] = n
	return n
}

// lookup finds a name that processes see.
func (d *disk) lookup(dir *node, name string) (*node, syscall.Errno) {
	if !dir.isFolder() {
		return nil, syscall.ENOTDIR
	}
	id, ok := dir.names[name]
	if !ok {
		return nil, syscall.ENOENT
	}
	return d.nodes[id], 0
}

// path is the last path of n, from the mounted folder, which is "/". A folder's ends in a slash.
func (d *disk) path(n *node) string {
	p := "/"
	if !n.isFolder() {
		p = ""
	}
	for at := n; at != nil && at.id != rootIno; at = d.nodes[at.parent] {
		p = "/" + at.name + p
	}
	return p
}

// create adds a file or folder, according to the type bits of mode.
func (d *disk) create(dir *node, name string, mode uint32) (*node, syscall.Errno) {
	if !dir.linked {
		return nil, syscall.ENOENT
	}
	if _, ok := dir.names[name]; ok {
		return nil, syscall.EEXIST
	}
	n := d.newNode(mode)
	d.change([]edit{{dir.id, name, n.id}}, dir.id)
	return n, 0
}

// unlink removes the name of a file, or of an empty folder when folder is set.
func (d *disk) unlink(dir *node, name string, folder bool) syscall.Errno {
	n, errno := d.lookup(dir, name)
	switch {
	case errno != 0:
		return errno
	case folder && !n.isFolder():
		return syscall.ENOTDIR
	case !folder && n.isFolder():
		return syscall.EISDIR
	case len(n.names) > 0:
		return syscall.ENOTEMPTY
	}
	d.change([]edit{{dir.id, name, 0}}, dir.id, n.id)
	return 0
}

// rename moves a name and replaces what stood there, in one change.
func (d *disk) rename(from *node, oldName string, to *node, newName string, noReplace bool) syscall.Errno {
	n, errno := d.lookup(from, oldName)
	if errno != 0 {
		return errno
	}
	if !to.linked {
		return syscall.ENOENT
	}
	if target, errno := d.lookup(to, newName); errno == 0 {
		switch {
		case noReplace:
			return syscall.EEXIST
		case target == n:
			return 0
		case target.isFolder() && !n.isFolder():
			return syscall.EISDIR
		case !target.isFolder() && n.isFolder():
			return syscall.ENOTDIR
		case len(target.names) > 0:
			return syscall.ENOTEMPTY
		}
	}
	d.change([]edit{{from.id, oldName, 0}, {to.id, newName, n.id}}, d.renameNeeds(from, to, newName)...)
	return 0
}

// renameNeeds lists the folders whose earlier changes a rename depends on. Without those
// on the way to the destination, an image could have lost the old name and not reach the
// new one; without a replaced folder, it could lose what was moved out of that before.
func (d *disk) renameNeeds(from, to *node, newName string) []ino {
	needs := []ino{from.id, to.id}
	if old, ok := to.names[newName]; ok {
		needs = append(needs, old)
	}
	if to == from {
		return needs
	}
	for at := to; at.id != rootIno; at = d.nodes[at.parent] {
		needs = append(needs, at.parent)
	}
	return needs
}

// change makes edits visible and queues them as one unsynced change.
func (d *disk) change(edits []edit, needs ...ino) {
	for _, e := range edits {
		dir := d.nodes[e.dir]
		if old, ok := dir.names[e.name]; ok {
			d.nodes[old].linked = false
		}
		if e.target == 0 {
			delete(dir.names, e.name)
		} else {
			n := d.nodes[e.target]
			n.linked, n.parent, n.name = true, e.dir, e.name
			dir.names[e.name] = e.target
		}
		dir.touch(d.now())
	}
	d.names = append(d.names, &op{seq: d.next(), edits: edits, needs: needs})
}

// next numbers an operation.
func (d *disk) next() uint64 {
	d.seq++
	return d.seq
}

// write changes content and queues the change. A page whose earlier content was lost in a
// failed sync is dirty as a whole again, so the queued change covers that whole page.
func (d *disk) write(n *node, off int64, p []byte) syscall.Errno {
	end := off + int64(len(p))
	if end > maxFileBytes {
		return syscall.EFBIG
	}
	if len(p) == 0 {
		return 0
	}
	d.counts.Writes++
	n.data = resize(n.data, max(int64(len(n.data)), end))
	copy(n.data[off:], p)
	n.touch(d.now())
	lo, hi := off, end
	for page := off / pageBytes; page*pageBytes < end; page++ {
		if n.lost[page] {
			delete(n.lost, page)
			lo = min(lo, page*pageBytes)
			hi = max(hi, min((page+1)*pageBytes, int64(len(n.data))))
		}
	}
	data := append([]byte(nil), n.data[lo:hi]...)
	n.pending = append(n.pending, &op{seq: d.next(), file: n.id, off: lo, length: hi - lo, data: data})
	return 0
}

// truncate sets the length and queues the change.
func (d *disk) truncate(n *node, size int64) syscall.Errno {
	if n.isFolder() {
		return syscall.EISDIR
	}
	if size > maxFileBytes {
		return syscall.EFBIG
	}
	if size == int64(len(n.data)) {
		return 0
	}
	n.data = resize(n.data, size)
	n.touch(d.now())
	n.pending = append(n.pending, &op{seq: d.next(), file: n.id, truncate: true, off: size})
	return 0
}

// touch stamps a change of content.
func (n *node) touch(t time.Time) { n.times.modify, n.times.change = t, t }

// sync makes n durable: the content and length of a file, the names in a folder. An
// injected failure makes it return that error instead (see lose).
func (d *disk) sync(n *node) syscall.Errno {
	if errno := d.planned(CallSync, d.path(n)); errno != 0 {
		d.counts.FailedSyncs++
		n.lose()
		return errno
	}
	if n.isFolder() {
		d.counts.FolderSyncs++
		d.commitNames(n.id)
		return 0
	}
	d.counts.FileSyncs++
	for _, o := range n.pending {
		n.durData = o.applyTo(n.durData)
	}
	n.pending = nil
	return 0
}

// planned counts a call on p against every planned failure and returns the error of the
// first one that is due.
func (d *disk) planned(call Call, p string) syscall.Errno {
	var due syscall.Errno
	kept := d.failures[:0]
	for _, f := range d.failures {
		if f.call == call && f.matches(p) {
			f.after--
			if f.after <= 0 && due == 0 {
				due = f.errno
				d.counts.Failed++
				continue
			}
		}
		kept = append(kept, f)
	}
	d.failures = kept
	return due
}

// matches reports whether f counts a call on p. Folders, whose paths end in a slash, are
// only counted for a suffix that ends in one as well, or for any path at all.
func (f failure) matches(p string) bool {
	if f.suffix == anyPath {
		return true
	}
	if f.suffix == "" {
		return !strings.HasSuffix(p, "/")
	}
	return strings.HasSuffix(p, f.suffix)
}

// lose does to a file what a failed sync does on Linux: its dirty pages count as clean, so
// no later sync writes them. Lengths are metadata and stay unsynced. The names in a folder
// stay unsynced too.
func (n *node) lose() {
	for _, o := range n.pending {
		if o.truncate {
			continue
		}
		o.data = nil
		if n.lost == nil {
			n.lost = map[int64]bool{}
		}
		for page := o.off / pageBytes; page*pageBytes < o.off+o.length; page++ {
			n.lost[page] = true
		}
	}
}

// commitNames makes the names in folder dir durable. A change that touches two folders
// takes along what it needs from before, as a journal would.
func (d *disk) commitNames(dir ino) {
	synced, needed := map[ino]bool{dir: true}, map[ino]bool{}
	commit := make([]bool, len(d.names))
	for i := len(d.names) - 1; i >= 0; i-- {
		o := d.names[i]
		if commit[i] = o.editsAny(synced) || o.editsAny(needed); commit[i] {
			for _, f := range o.needs {
				needed[f] = true
			}
		}
	}
	var rest []*op
	for i, o := range d.names {
		if !commit[i] {
			rest = append(rest, o)
			continue
		}
		for _, e := range o.edits {
			e.applyTo(d.nodes[e.dir].durNames)
		}
	}
	d.names = rest
	if len(d.nodes) >= d.sweepAt {
		d.sweep()
	}
}

// applyTo performs e on the names of its folder.
func (e edit) applyTo(names map[string]ino) {
	if e.target == 0 {
		delete(names, e.name)
		return
	}
	names[e.name] = e.target
}

// applyTo performs a change of content on buf and returns the result, which may share its memory.
func (o *op) applyTo(buf []byte) []byte {
	if o.truncate {
		return resize(buf, o.off)
	}
	buf = resize(buf, max(int64(len(buf)), o.off+o.length))
	copy(buf[o.off:], o.data)
	return buf
}

// resize sets the length of buf; what it adds is zero.
func resize(buf []byte, size int64) []byte {
	if size <= int64(len(buf)) {
		return buf[:size]
	}
	old := len(buf)
	if size <= int64(cap(buf)) {
		buf = buf[:size]
		clear(buf[old:])
		return buf
	}
	return append(buf, make([]byte, int(size)-old)...)
}

// sweep forgets nodes that no process and no possible image can reach.
func (d *disk) sweep() {
	live := d.reachable()
	maps.DeleteFunc(d.nodes, func(id ino, n *node) bool {
		return !live[id] && !n.linked && n.opens == 0 && n.lookups == 0
	})
	d.sweepAt = 2*len(d.nodes) + sweepAfter
}

// reachable finds the nodes that an image can hold, through durable names and unsynced
// ones, and the folders that unsynced changes are still to be made in.
func (d *disk) reachable() map[ino]bool {
	todo := []ino{rootIno}
	for _, o := range d.names {
		for _, e := range o.edits {
			todo = append(todo, e.dir)
			if e.target != 0 {
				todo = append(todo, e.target)
			}
		}
	}
	live := map[ino]bool{}
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if live[id] {
			continue
		}
		live[id] = true
		todo = slices.AppendSeq(todo, maps.Values(d.nodes[id].durNames))
	}
	return live
}
