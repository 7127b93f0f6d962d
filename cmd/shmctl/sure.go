//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// sure keeps of the findings of one snapshot those deadlocks that are there in a later
// one, too: words that are read one after the other can look like one that never was.
func sure(src *source, s *snapshot) ([]finding, *snapshot, error) {
	f := s.findings()
	passing := func(f finding) bool { return f.Kind != findCorrupt || s.damage == nil }
	if src.dump != nil || !slices.ContainsFunc(f, passing) {
		return f, s, nil
	}
	time.Sleep(confirmAfter)
	later, err := src.again()
	if err != nil {
		return nil, s, err
	}
	stays := func(now finding) bool {
		return slices.ContainsFunc(f, func(before finding) bool {
			return key(before) == key(now) && slices.EqualFunc(before.proof, now.proof, proof.same)
		})
	}
	still := slices.DeleteFunc(later.findings(), func(f finding) bool { return !stays(f) })
	return still, later, nil
}

// proof tells one wait from the next of the same process for the same object, and one
// hold from the next: where processes have many goroutines and a lock is hot, what
// looks like the same cycle twice may be two that were over in no time.
type proof struct {
	order uint64
	since int64
	words string
}

// prove gives the proof of an edge: the oldest of its waits, and those words of the object
// that a release changes while there are waiters.
func (s *snapshot) prove(e edge) (p proof) {
	for _, w := range s.waits {
		if w.Owner != e.From || w.Object != e.Object || w.For != e.For {
			continue
		}
		if p.words == "" || w.Order < p.order || w.Order == p.order && w.since != 0 && w.since < p.since {
			p = proof{w.Order, w.since, " "}
			if w.object < len(s.objects) {
				p.words = " " + wordsOf(&s.objects[w.object], &w)
			}
		}
	}
	return p
}

func wordsOf(o *object, w *wait) (text string) {
	for _, v := range o.Words {
		switch {
		case v.Name == "owner", v.Name == "wake", v.Name == "state", v.Name == "gate", v.Name == "writers",
			w.Want != nil && v.Name == fmt.Sprintf("key %d", *w.Want):
			text += v.Name + v.Bits + " "
		}
	}
	return text
}

// same reports whether a later proof is of the same wait for the same hold. A proof that
// had no date yet may have one by now.
func (p proof) same(later proof) bool {
	return p.order == later.order && (p.since == 0 || p.order != 0 || p.since == later.since) && p.words == later.words
}

// confirmAfter is how much later the second look is. A variable for tests.
var confirmAfter = 50 * time.Millisecond

// key is what a finding is about.
func key(f finding) string {
	return f.Kind + "\x00" + strings.Join(f.Participants, ",") + "\x00" + strings.Join(f.Objects, "\x00")
}
