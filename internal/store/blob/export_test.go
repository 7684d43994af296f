package blob

import "time"

// SetOpened moves the time at which f says that it was opened.
func SetOpened(f *Folder, t time.Time) { f.opened = t }

// Opened is the time at which f says that it was opened.
func Opened(f *Folder) time.Time { return f.opened }
