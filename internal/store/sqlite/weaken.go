package sqlite

// Weakness is a fault that a program built with the tag weaken can be told to have, by the environment variable
// TABELLION_WEAKEN. It exists for the controls of fault tests, which must find each of them; a program built without
// the tag holds none of this code.
type Weakness string

// The weaknesses.
const (
	// AckBeforeCommit answers callers before the transaction is committed.
	AckBeforeCommit Weakness = "ack-before-commit"
	// RecordLate writes idempotency records in a second transaction.
	RecordLate Weakness = "record-late"
	// SyncNormal opens connections with synchronous=NORMAL: commits are not synced.
	SyncNormal Weakness = "sync-normal"
	// PinWriter is none: it keeps the writer on one thread, so that a tool that counts the system calls of threads
	// counts all syncs of commits.
	PinWriter Weakness = "pin-writer"
)
