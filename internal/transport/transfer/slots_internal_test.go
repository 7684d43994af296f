package transfer

import "testing"

func TestSlots(t *testing.T) {
	s := &slots{each: 2, all: 3}
	a1, ok1 := s.take("a")
	_, ok2 := s.take("a")
	if _, ok3 := s.take("a"); !ok1 || !ok2 || ok3 {
		t.Errorf("one principal: %t %t %t", ok1, ok2, ok3)
	}
	if _, ok := s.take("b"); !ok {
		t.Error("another principal has no slot")
	}
	if _, ok := s.take("b"); ok {
		t.Error("more than there are in all")
	}
	a1()
	if _, ok := s.take("b"); !ok {
		t.Error("a slot that was given back is not there")
	}
	if len(s.by) != 2 || s.by["a"] != 1 || s.total != 3 {
		t.Errorf("counted %v, %d in all", s.by, s.total)
	}
}
