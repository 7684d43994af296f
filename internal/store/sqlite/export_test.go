package sqlite

// SetWriteBack sets the length of the log, in pages, from which it is written back. For use before the first write.
func SetWriteBack(s *Store, pages int64) { s.writer.log.limit = pages }
