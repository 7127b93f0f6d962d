package arenakernel

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/shmsync/shmsync"
)

// Check examines the whole arena, and the objects of each kind that this program knows. For every
// state that no correct participant writes, it returns an error that Is [shmsync.ErrCorrupt]. All
// these errors are joined. Changes that other processes make at the same time can cause a false
// report, so call Check again before you act on a report.
func (a *Arena) Check() error {
	if err := a.BeginCall("arena.check"); err != nil {
		return err
	}
	defer a.EndCall()
	errs := a.checkHeap()
	a.visit(func(o Object) {
		ops, ok := opsOf(o)
		if !ok || ops.Check == nil {
			return
		}
		if err := ops.Check(a, o); err != nil {
			errs = append(errs, err)
		}
	})
	return errors.Join(errs...)
}

// checksOfDamage is how many checks in a row have to find damage before an arena is replaced. A
// check can mistake a change that is in progress for damage. No other participant is in the arena
// during the checks, but a pending participant may reap at the same time.
const checksOfDamage = 3

// isDamaged reports whether several checks in a row find damage.
func (a *Arena) isDamaged() bool {
	for range checksOfDamage {
		if a.Check() == nil {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// A checker collects the damage that it finds in an arena.
type checker struct {
	*core
	errs  []error
	found map[string]Offset // committed objects by name
}

// maxFindings limits the length of the report on an arena that contains only garbage.
const maxFindings = 100

func (c *checker) bad(format string, args ...any) {
	if len(c.errs) < maxFindings {
		c.errs = append(c.errs, c.fail("arena.check", shmsync.ErrCorrupt, fmt.Sprintf(format, args...)))
	}
}

// checkHeap checks the chunk words, the block words, the directory and the wait nodes.
func (c *core) checkHeap() []error {
	ck := checker{core: c, found: map[string]Offset{}}
	for i := c.chunkFrom(0); i < c.geo.chunkCount; i = c.chunkFrom(i + 1) {
		ck.checkChunk(i)
	}
	c.handles.Lock()
	ck.checkObjects()
	ck.checkDirectory()
	c.handles.Unlock()
	ck.checkNodes()
	ck.checkRecords()
	return ck.errs
}

func (c *checker) checkChunk(i uint64) {
	w := c.loadChunk(i)
	if !w.legal(i, c.geo.chunkCount) {
		c.bad("chunk %d has the impossible word %#x", i, uint64(w))
		return
	}
	switch w.kind() {
	case chunkHead:
		claimed := c.blockWordOf(i, 0).Load()
		if claimed == blockFree {
			c.bad("the span at chunk %d is nobody's", i)
		}
		for j := i + 1; j < i+w.number(); j++ {
			if t := c.loadChunk(j); t != makeChunk(chunkTail, i, 0) && blockWord(claimed).participant() == 0 {
				c.bad("chunk %d, of the span at chunk %d, has the word %#x", j, i, uint64(t))
			}
		}
	case chunkTail:
		h := c.loadChunk(w.number())
		if h.kind() != chunkHead || h.number() <= i-w.number() {
			c.bad("chunk %d belongs to a span at chunk %d, which has the word %#x", i, w.number(), uint64(h))
		}
	}
	if w.reserved() {
		c.checkBlocks(i)
	}
}

func (c *checker) checkBlocks(i uint64) {
	for k := range uint64(blockWords) {
		w := blockWord(c.blockWordOf(i, k).Load())
		if w == blockFree {
			continue
		}
		b, ok := c.blockOfWord(i, k)
		isNode := w.kind() == blockNode
		switch {
		case !w.legal():
			c.bad("block %d of chunk %d has the impossible word %#x", k, i, uint32(w))
		case !ok && w.participant().Generation() == 0:
			c.bad("word %d of chunk %d is %v, but no block is there", k, i, w)
		case ok && w.participant().Generation() == 0 && isNode != (b.class == classNode):
			c.bad("block %d of chunk %d is %v, in the wrong kind of chunk", k, i, w)
		}
	}
}

// checkObjects checks the headers of all objects. The caller has locked c.handles.
func (c *checker) checkObjects() {
	c.eachBlock(func(off Offset, _ uint64, w blockWord) bool {
		if w.kind() != blockObject {
			return true
		}
		c.guard(off)
		defer c.unguard()
		h, err := c.headerAt(off)
		if err != nil {
			if errors.Is(err, shmsync.ErrCorrupt) {
				c.errs = append(c.errs, err)
			}
			return len(c.errs) < maxFindings
		}
		s := h.load()
		if !s.legal() || s.phase() == objectPending {
			c.bad("the object at %v has the impossible state %#x", off, uint32(s))
		}
		if err := c.eachRecord(off, func(block, int) bool { return true }); err != nil {
			c.bad("%v", err)
		}
		if h.Name == "" || !s.there() {
			return true
		}
		if other, twice := c.found[h.Name]; twice {
			c.bad("the objects at %v and %v are both called %s", other, off, strconv.Quote(h.Name))
		}
		c.found[h.Name] = off
		return true
	})
}

// entryFrom does what the method chunkFrom does, for the entries of the directory.
func (c *core) entryFrom(pos uint64) uint64 {
	if c.data == nil {
		return pos
	}
	return c.afterHole(c.geo.dirOff, pos, c.geo.dirCount)
}

// checkDirectory checks that each name leads to an object, and that each object can be found by its
// name. The caller has locked c.handles.
func (c *checker) checkDirectory() {
	for pos := c.entryFrom(0); pos < c.geo.dirCount; pos = c.entryFrom(pos + 1) {
		e := c.loadEntry(pos)
		if !e.used() {
			continue
		}
		_, ok, err := c.enter(pos, e)
		c.unguard()
		if !ok && err != nil {
			c.bad("entry %d of the directory: %v", pos, err)
		}
	}
	for name, off := range c.found {
		hash, listed := hashName(name), 0
		c.probe(hash, func(_ uint64, e entry) bool {
			if e == makeEntry(off, hash) {
				listed++
			}
			return true
		})
		if listed != 1 {
			c.bad("the object %s at %v is %d times in the directory", strconv.Quote(name), off, listed)
		}
	}
}

// goes reports whether the object at off is being freed. If so, wait nodes of the object may still
// be in use, because they are freed last.
func (c *checker) goes(off Offset) bool {
	w, _, ok := c.blockAt(off)
	return ok && w.kind() == blockFreeing
}

// reaped reports whether the participant n is dead and no longer has its slot.
func (c *checker) reaped(n ParticipantID) bool {
	i := n.Slot()
	return i >= 1 && i <= c.geo.slots && !c.current(n) && participantIn(i, c.slotState(i)) != n
}

// checkNodes checks the words of the wait nodes in use. It also checks that each poller node, which
// is a wait node on a wait list, is on the list that it names.
func (c *checker) checkNodes() {
	lists := c.newNodeLists()
	c.eachNode(func(off Offset, n *Node) {
		owner, list := n.Owner(), Offset(n.list.Load())
		switch {
		case owner != 0 && !owner.valid():
			c.bad("the wait node at %v belongs to %v, which nobody is called", off, owner)
		case list == 0 && owner == 0:
			c.bad("the wait node at %v is in use, but nobody's", off)
		case list != 0 && !c.within(list, 8, 8):
			c.bad("the wait node at %v names a list at %v", off, list)
		case list != 0 && owner == 0 && !lists.has(list, off) && !c.goes(n.Object()):
			c.bad("the wait node at %v is nobody's, and not on the list at %v", off, list)
		case list == 0 && n.stamp.Load() != 0 && c.reaped(owner) && !c.isObject(n.Object()) && !c.goes(n.Object()):
			c.bad("the wait node at %v belongs to %v, a dead participant, and names an object at %v that does not exist", off, owner, n.Object())
		}
	})
	for _, err := range lists.errs {
		c.bad("%v", err)
	}
}

// checkRecords checks that each slot record is on the list of its object.
func (c *checker) checkRecords() {
	c.handles.Lock()
	defer c.handles.Unlock()
	defer c.unguard()
	lists := c.newRecordLists()
	c.eachBlock(func(off Offset, _ uint64, w blockWord) bool {
		b, ok := c.locate(off)
		if w.recordSlot() == 0 || !ok {
			return true
		}
		object := Offset(c.peek64(off + recordObject))
		c.guard(object)
		listed := c.isObject(object) && lists.has(object, b)
		if !listed && !c.goes(object) && b.load() == w {
			c.bad("the slot record at %v is not on the list of the object at %v", off, object)
		}
		return true
	})
}

// listsRecord reports whether the list of an object has the slot record b.
//
// Preconditions: this participant guards the object, or reads a copy of the arena.
func (c *core) listsRecord(object Offset, b block) (listed bool) {
	c.eachRecord(object, func(r block, _ int) bool {
		listed = r == b
		return !listed
	})
	return listed
}
