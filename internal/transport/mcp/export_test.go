package mcp

// Held is what the server holds for its clients: bytes of messages, sessions that are open or begin, streams and
// subscriptions.
func (s *Server) Held() (bytes int64, sessions, streams, subscriptions int) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	count := func(q *quota) int {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.all
	}
	return s.memory.used, count(&s.sessions.places), count(&s.streams), count(&s.listeners.places)
}
