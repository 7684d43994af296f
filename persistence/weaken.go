package persistence

// Weakness is a fault that a program built with the tag weaken can be told to have, by the environment variable
// TABELLION_WEAKEN, for the controls of fault tests. A program built without the tag holds none of this code.
type Weakness string

// The weaknesses.
const (
	// MetadataFirst records that bytes were received before they are stored.
	MetadataFirst Weakness = "metadata-first"
	// SweepDuringCommit removes bytes while a call stores or publishes them.
	SweepDuringCommit Weakness = "sweep-during-commit"
)
