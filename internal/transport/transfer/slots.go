package transfer

import "sync"

// slots bounds the transfers under way, of one principal and in all. A transfer may take hours, so it holds no place of
// those that the gate has for calls: many slow files must not keep anybody from reading a document.
type slots struct {
	each, all int

	mu    sync.Mutex
	total int
	by    map[string]int
}

// take takes a slot until release; false when there is none.
func (s *slots) take(key string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.all || s.by[key] >= s.each {
		return nil, false
	}
	if s.by == nil {
		s.by = map[string]int{}
	}
	s.total++
	s.by[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.total--
		if s.by[key]--; s.by[key] == 0 {
			delete(s.by, key)
		}
	}, true
}
