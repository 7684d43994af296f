package blob

// Weakness is a fault that a program built with the tag weaken can be told to have, by the environment variable
// TABELLION_WEAKEN. It exists for the controls of fault tests, which must find each of them; a program built without
// the tag holds none of this code.
type Weakness string

// The weaknesses.
const (
	// NoFolderSync leaves out the syncs of folders, whatever durability was asked for. It is read when a folder is opened.
	NoFolderSync Weakness = "blob-no-folder-sync"
	// LateSync lets Keep answer before the bytes are synced.
	LateSync Weakness = "blob-late-sync"
)
