package powercut

import (
	"maps"
	"slices"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// renameNoReplace is RENAME_NOREPLACE of renameat2(2).
const renameNoReplace = 1

// mount translates what the kernel asks into operations on a disk. One lock makes each a
// moment; the embedded default answers "not implemented" to what is left out, upon which
// the kernel does without (locks, copy_file_range) or tells the program (links).
type mount struct {
	fuse.RawFileSystem
	server *fuse.Server
	report func(path string, dir bool) // called without the lock

	mu       sync.Mutex
	disk     *disk
	dead     bool
	readOnly bool
	listings map[uint64][]fuse.DirEntry // open folders, as they were when opened
	lastDir  uint64                     // handle number
}

// newMount returns a mount of an empty disk.
func newMount(report func(string, bool)) *mount {
	return &mount{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		report:        report,
		disk:          newDisk(),
		listings:      map[uint64][]fuse.DirEntry{},
	}
}

// locked runs do between two file operations.
func (m *mount) locked(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// on runs do with the node of a request, at one moment, unless the disk is dead.
func (m *mount) on(id uint64, do func(n *node) syscall.Errno) fuse.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.disk.nodes[ino(id)]
	switch {
	case m.dead:
		return fuse.EIO
	case n == nil:
		return fuse.Status(syscall.ESTALE)
	}
	return fuse.Status(do(n))
}

// change is on for what changes something: refused while the disk is read-only.
func (m *mount) change(id uint64, do func(n *node) syscall.Errno) fuse.Status {
	return m.on(id, func(n *node) syscall.Errno {
		if m.readOnly {
			return syscall.EROFS
		}
		return do(n)
	})
}

// kill ends the disk's life and takes its content out of the kernel's cache.
func (m *mount) kill() {
	var files []ino
	m.locked(func() {
		m.dead = true
		files = slices.Collect(maps.Keys(m.disk.nodes))
	})
	for _, id := range files {
		m.server.InodeNotify(uint64(id), 0, 0) // the kernel may not know it: nothing to drop then
	}
}

// Init keeps the server, for kill.
func (m *mount) Init(s *fuse.Server) { m.server = s }

// String names the file system in debug output.
func (m *mount) String() string { return "powercut" }

// fill copies what stat reports.
func (n *node) fill(a *fuse.Attr) {
	a.Ino, a.Mode, a.Nlink = uint64(n.id), n.mode, 1
	if n.isFolder() {
		a.Nlink = 2
	}
	if !n.linked {
		a.Nlink = 0
	}
	a.Uid, a.Gid = n.uid, n.gid
	a.Size, a.Blksize = uint64(len(n.data)), pageBytes
	a.Blocks = (a.Size + 511) / 512
	a.SetTimes(&n.times.access, &n.times.modify, &n.times.change)
}

// enter hands a node to the kernel, which counts as one reference. All times to live stay
// zero: each look-up asks again, so that death is noticed at once.
func (n *node) enter(out *fuse.EntryOut) {
	n.lookups++
	out.NodeId = uint64(n.id)
	n.fill(&out.Attr)
}

// Lookup finds a name.
func (m *mount) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return m.on(in.NodeId, func(dir *node) syscall.Errno {
		n, errno := m.disk.lookup(dir, name)
		if errno == 0 {
			n.enter(out)
		}
		return errno
	})
}

// Forget gives back references that the kernel held.
func (m *mount) Forget(id, count uint64) {
	m.locked(func() {
		if n := m.disk.nodes[ino(id)]; n != nil {
			n.lookups -= min(count, n.lookups)
		}
	})
}

// GetAttr answers stat.
func (m *mount) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return m.on(in.NodeId, func(n *node) syscall.Errno {
		n.fill(&out.Attr)
		return 0
	})
}

// SetAttr changes the length, which is modelled, and modes, owners and times, which are not.
func (m *mount) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return m.change(in.NodeId, func(n *node) syscall.Errno {
		if size, ok := in.GetSize(); ok {
			if errno := m.disk.truncate(n, int64(min(size, maxFileBytes+1))); errno != 0 {
				return errno
			}
		}
		n.setAttr(&in.SetAttrInCommon, m.disk)
		n.fill(&out.Attr)
		return 0
	})
}

// setAttr takes over what is not part of the model.
func (n *node) setAttr(in *fuse.SetAttrInCommon, d *disk) {
	if mode, ok := in.GetMode(); ok {
		n.mode = n.mode&^0o7777 | mode&0o7777
	}
	if uid, ok := in.GetUID(); ok {
		n.uid = uid
	}
	if gid, ok := in.GetGID(); ok {
		n.gid = gid
	}
	n.times.change = d.now()
	if t, ok := in.GetATime(); ok {
		n.times.access = t
	}
	if t, ok := in.GetMTime(); ok {
		n.times.modify = t
	}
}

// add creates a node for a caller and hands it to the kernel.
func (m *mount) add(in *fuse.InHeader, dir *node, name string, mode uint32, out *fuse.EntryOut) (*node, syscall.Errno) {
	n, errno := m.disk.create(dir, name, mode)
	if errno != 0 {
		return nil, errno
	}
	n.uid, n.gid = in.Uid, in.Gid
	n.enter(out)
	return n, 0
}

// Mkdir creates a folder.
func (m *mount) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return m.change(in.NodeId, func(dir *node) syscall.Errno {
		_, errno := m.add(&in.InHeader, dir, name, modeFolder|in.Mode&0o7777, out)
		return errno
	})
}

// Mknod creates a file, or the name of a socket, which the kernel then connects by itself.
func (m *mount) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return m.change(in.NodeId, func(dir *node) syscall.Errno {
		if kind := in.Mode & modeType; kind != modeRegular && kind != modeSocket {
			return syscall.EPERM
		}
		_, errno := m.add(&in.InHeader, dir, name, in.Mode&(modeType|0o7777), out)
		return errno
	})
}

// Create creates and opens a file. The kernel has looked before whether it exists.
func (m *mount) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return m.change(in.NodeId, func(dir *node) syscall.Errno {
		if errno := m.disk.planned(CallOpen, m.disk.path(dir)+name); errno != 0 {
			return errno
		}
		n, errno := m.add(&in.InHeader, dir, name, modeRegular|in.Mode&0o7777, &out.EntryOut)
		if errno == 0 {
			n.opens++
			out.OpenFlags = fuse.FOPEN_KEEP_CACHE
		}
		return errno
	})
}

// Open counts a handle. Handles carry no state: all is in the node.
func (m *mount) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return m.on(in.NodeId, func(n *node) syscall.Errno {
		if m.readOnly && in.Flags&syscall.O_ACCMODE != syscall.O_RDONLY {
			return syscall.EROFS
		}
		if errno := m.disk.planned(CallOpen, m.disk.path(n)); errno != 0 {
			return errno
		}
		if in.Flags&syscall.O_TRUNC != 0 {
			if errno := m.disk.truncate(n, 0); errno != 0 {
				return errno
			}
		}
		n.opens++
		out.OpenFlags = fuse.FOPEN_KEEP_CACHE
		return 0
	})
}

// Release ends a handle.
func (m *mount) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	m.locked(func() {
		if n := m.disk.nodes[ino(in.NodeId)]; n != nil {
			n.opens--
		}
	})
}

// Flush answers close: closing makes nothing durable.
func (m *mount) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

// Read reads what processes see.
func (m *mount) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	var size int
	status := m.on(in.NodeId, func(n *node) syscall.Errno {
		size = copy(buf, n.data[min(in.Offset, uint64(len(n.data))):])
		return 0
	})
	return fuse.ReadResultData(buf[:size]), status
}

// Write changes what processes see.
func (m *mount) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	status := m.change(in.NodeId, func(n *node) syscall.Errno {
		if errno := m.disk.planned(CallWrite, m.disk.path(n)); errno != 0 {
			return errno
		}
		return m.disk.write(n, int64(min(in.Offset, maxFileBytes+1)), data)
	})
	return uint32(len(data)), status
}

// Writev is Write for data in several parts.
func (m *mount) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	return m.Write(cancel, in, slices.Concat(data...))
}

// Fallocate extends a file, which is what mode 0 asks for; other modes are not there.
func (m *mount) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	return m.change(in.NodeId, func(n *node) syscall.Errno {
		if in.Mode != 0 {
			return syscall.EOPNOTSUPP
		}
		end := min(in.Offset, maxFileBytes+1) + min(in.Length, maxFileBytes+1)
		return m.disk.truncate(n, max(int64(len(n.data)), int64(end)))
	})
}

// Fsync syncs a file; fdatasync comes here too and is the same to the model.
func (m *mount) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return m.sync(in.NodeId)
}

// FsyncDir syncs the names in a folder.
func (m *mount) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return m.sync(in.NodeId)
}

// sync makes a file or folder durable and reports it before the answer goes out.
func (m *mount) sync(id uint64) fuse.Status {
	var path string
	var dir bool
	status := m.on(id, func(n *node) syscall.Errno {
		path, dir = m.disk.path(n), n.isFolder()
		return m.disk.sync(n)
	})
	if status.Ok() {
		m.report(path, dir)
	}
	return status
}

// Unlink removes the name of a file.
func (m *mount) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return m.change(in.NodeId, func(dir *node) syscall.Errno { return m.disk.unlink(dir, name, false) })
}

// Rmdir removes an empty folder.
func (m *mount) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return m.change(in.NodeId, func(dir *node) syscall.Errno { return m.disk.unlink(dir, name, true) })
}

// Rename moves a name. Swapping two names is refused.
func (m *mount) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	return m.change(in.NodeId, func(from *node) syscall.Errno {
		to := m.disk.nodes[ino(in.Newdir)]
		if to == nil {
			return syscall.ESTALE
		}
		if in.Flags&^renameNoReplace != 0 {
			return syscall.EINVAL
		}
		if errno := m.disk.planned(CallRename, m.disk.path(to)+newName); errno != 0 {
			return errno
		}
		return m.disk.rename(from, oldName, to, newName, in.Flags == renameNoReplace)
	})
}

// Link refuses: a file has one name.
func (m *mount) Link(<-chan struct{}, *fuse.LinkIn, string, *fuse.EntryOut) fuse.Status {
	return fuse.EPERM
}

// Symlink refuses: there are files and folders only.
func (m *mount) Symlink(<-chan struct{}, *fuse.InHeader, string, string, *fuse.EntryOut) fuse.Status {
	return fuse.EPERM
}

// OpenDir keeps the list of names as it is now, so that a reader that removes what it
// lists misses nothing.
func (m *mount) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return m.on(in.NodeId, func(dir *node) syscall.Errno {
		entries := []fuse.DirEntry{{Name: ".", Mode: modeFolder, Ino: uint64(dir.id)}, {Name: "..", Mode: modeFolder}}
		for _, name := range slices.Sorted(maps.Keys(dir.names)) {
			n := m.disk.nodes[dir.names[name]]
			entries = append(entries, fuse.DirEntry{Name: name, Mode: n.mode, Ino: uint64(n.id)})
		}
		m.lastDir++
		m.listings[m.lastDir] = entries
		dir.opens++
		out.Fh = m.lastDir
		return 0
	})
}

// ReadDir goes on where the last call ended.
func (m *mount) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return m.on(in.NodeId, func(*node) syscall.Errno {
		entries := m.listings[in.Fh]
		for i := min(in.Offset, uint64(len(entries))); i < uint64(len(entries)); i++ {
			entries[i].Off = i + 1
			if !out.AddDirEntry(entries[i]) {
				break
			}
		}
		return 0
	})
}

// ReleaseDir forgets the list of names of an open folder.
func (m *mount) ReleaseDir(in *fuse.ReleaseIn) {
	m.locked(func() {
		delete(m.listings, in.Fh)
		if n := m.disk.nodes[ino(in.NodeId)]; n != nil {
			n.opens--
		}
	})
}

// StatFs reports a disk that is never full; disk-full tests use a file system that can be.
func (m *mount) StatFs(_ <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	return m.on(in.NodeId, func(*node) syscall.Errno {
		*out = fuse.StatfsOut{Blocks: 1 << 24, Bfree: 1 << 23, Bavail: 1 << 23, Files: 1 << 24,
			Ffree: 1 << 23, Bsize: pageBytes, Frsize: pageBytes, NameLen: 255}
		return 0
	})
}
