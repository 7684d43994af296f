// Package blob keeps bytes under their SHA-256: in a folder (Folder), or in memory for tests (Memory).
//
//	blobs, err := blob.OpenFolder(filepath.Join(data, "blobs"), blob.FolderOptions{})
//	w, err := blobs.Create(ctx)
//	... io.Copy(w, body), compare w.Sum() and w.Size() with what was declared ...
//	err = w.Keep(ctx) // or w.Drop()
//
// A folder looks like this:
//
//	incoming/<random>        bytes that are being written; emptied when the folder is opened
//	<2 hex>/<64 hex>         a blob, under its digest, below the first two characters of it
//
// Names are lower-case hexadecimal, so a file system that does not tell cases apart is good enough.
//
// Durability: when Keep returns nil the blob survives a crash of the process and of the machine. Its bytes are synced
// before it gets its name, and the folder that holds the name is synced before Keep returns (persistence.v1, section
// 11). A folder belongs to one process at a time; the lock of the data folder sees to that.
package blob
