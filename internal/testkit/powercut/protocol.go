package powercut

// The two processes speak JSON over two connections: requests and answers on one, in
// turn; reports of syncs and their confirmations on the other.

// Operations of a request.
const (
	opMount  = "mount"
	opCut    = "cut"
	opFail   = "fail"
	opHook   = "hook"
	opCounts = "counts"
	opKill   = "kill"

	opForgive  = "forgive"
	opReadOnly = "read-only"
)

// request asks the serving process for one thing. Which fields count depends on Op.
type request struct {
	Op    string
	Path  string // mount: the folder; cut: where images go; fail: the suffix
	Seed  uint64 // mount
	N     int    // cut: images; fail: which call
	Call  Call   // fail
	Errno int    // fail
	On    bool   // hook, read-only
}

// response answers a request. Err is empty when it was done.
type response struct {
	Err         string
	Unavailable bool // Err is about the machine, see ErrUnavailable
	Images      []Image
	Counts      Counts
}

// syncEvent reports a successful sync.
type syncEvent struct {
	Path string
	Dir  bool
}
