package transfer

import (
	"testing"
	"time"
)

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

func TestTempo(t *testing.T) {
	steps := []struct {
		bytes int
		took  time.Duration
		slow  bool
	}{
		{10, 59 * time.Second, false}, // the grace is a minute
		{10, 2 * time.Second, true},
		{100_000, time.Second, false},
		{0, 90 * time.Second, false},
		{0, 20 * time.Second, true},
	}
	c := tempo{average: 1000, grace: time.Minute}
	for i, s := range steps {
		if got := c.tooSlow(s.bytes, s.took); got != s.slow {
			t.Errorf("step %d, %d bytes in %s: %t", i+1, c.moved, c.waited, got)
		}
	}
}
