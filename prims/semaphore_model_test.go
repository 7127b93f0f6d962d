//go:build linux

package prims

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shmsync/shmsync/internal/model"
)

// quickModel is a Semaphore and what its participants do without the latch: one thread
// each, which acquires what it wants and releases it, over and over. One that is killed
// is followed at once by another in its slot, with a name of its own; the sweep of what
// it had comes when it comes. How a wait ends is the model of the monitor: here a grant
// is one step.
type quickModel struct {
	wants []uint8
	size  uint8
	kills uint8
	bug   bug
}

const (
	quickThreads = 3 // and the undertaker
	quickNobody  = 255
)

type quickState struct {
	latch  uint8 // 0, the number of its holder, or quickNobody: its holder died
	free   uint8
	share  [quickThreads]quickShare
	opened uint8 // bits of shares
	last   uint8 // name
	log    quickLog
	queue  [quickThreads]uint8 // threads, numbered from 1
	queued [quickThreads]uint8 // and their names
	thread [quickThreads + 1]quickThread
	kills  uint8
}

type quickShare struct {
	name    uint8
	permits uint8
	quick   quickWord
}

// quickLog is the redo log: what a share and free become.
type quickLog struct {
	valid         bool
	share         uint8
	free, permits uint8
	quick         quickWord
}

type quickThread struct {
	pc    uint8
	back  uint8 // where it goes on when a share is closed
	at    uint8 // the share that it deals with
	sum   uint8 // what it has counted
	name  uint8
	seen  quickWord
	known bool // its share was opened under its name
	has   bool
	gave  bool // it has the latch, and has released
}

const (
	kIdle uint8 = iota
	kAcquireLook
	kAcquire
	kReleaseLook
	kRelease
	kEnter
	kMend
	kCount
	kCounted
	kSweep
	kSwept
	kBody
	kInherit
	kName
	kTake
	kTaken
	kGather
	kGathered
	kShutLook
	kShut
	kLog
	kApplyFree
	kApplyPermits
	kApplyQuick
	kUnlog
	kGive
	kGiven
	kOpen
	kOpenLog
	kOpened
	kLeave
	kAsleep
)

const (
	quickAnyName     bug = "a newcomer uses what its slot has"
	quickShutsPlain  bug = "a share is closed by a store of what was seen"
	quickQueuesOpen  bug = "a waiter queues and closes nothing"
	quickCountsPart  bug = "who mends counts permits only"
	quickHasNoLog    bug = "a share is closed without a log"
	quickBuriesPart  bug = "a burial takes permits back only"
	quickOpensQueued bug = "a share is opened though somebody is queued"
	quickFoldsOpen   bug = "a share is emptied while it is open"
	quickSpareTwice  bug = "what is spare is left in free"
)

var (
	errQuickTooMany = errors.New("more permits are had than there are")
	errQuickLost    = errors.New("permits are lost, or made")
	errQuickSleeps  = errors.New("somebody sleeps though its permits are free")
	errQuickWrong   = errors.New("who has permits cannot release them")
)

func (m quickModel) explore(b bug) model.Result {
	m.bug = b
	first := quickState{free: m.size}
	for i := range m.wants {
		first.thread[i].name = 1
	}
	spec := model.Spec[quickState]{Init: []quickState{first}, Next: m.next, Check: m.check, Done: m.done, Show: m.show}
	return spec.Explore()
}

func (m *quickModel) next(s *quickState, emit func(model.Step[quickState])) {
	for i := 0; i <= len(m.wants); i++ {
		me := i
		if i == len(m.wants) {
			me = quickThreads
		}
		x := quickExec{quickModel: m, s: *s, me: me}
		x.t = &x.s.thread[me]
		if said, optional := x.step(); said != "" {
			emit(model.Step[quickState]{To: x.s, By: fmt.Sprintf("%c", 'P'+me), Label: said, Optional: optional})
		}
	}
	for i := range m.wants {
		if s.kills == m.kills {
			break
		}
		to := *s
		to.kills++
		to.thread[i] = quickThread{name: s.thread[i].name + 1}
		if to.latch == uint8(i+1) {
			to.latch = quickNobody
		}
		emit(model.Step[quickState]{To: to, By: fmt.Sprintf("%c", 'P'+i), Label: "is killed, and followed", Optional: true})
	}
}

type quickExec struct {
	*quickModel
	s  quickState
	t  *quickThread
	me int
}

// stale reports whether a share is that of a dead one.
func (m *quickModel) stale(s *quickState, i int) bool {
	h := &s.share[i]
	return h.name != 0 && h.name != s.thread[i].name && (h.permits != 0 || h.quick != 0)
}

// due reports whether a death has left something.
func (m *quickModel) due(s *quickState) bool {
	if s.latch == quickNobody {
		return true
	}
	for i := range m.wants {
		if m.stale(s, i) {
			return true
		}
	}
	for i, q := range s.queue {
		if q != 0 && s.queued[i] != s.thread[q-1].name {
			return true
		}
	}
	return false
}

func (x *quickExec) to(pc uint8, said string) (string, bool) { x.t.pc = pc; return said, false }

// close goes on to close a share, and then with pc.
func (x *quickExec) close(share, pc uint8, said string) (string, bool) {
	x.t.at, x.t.back = share, pc
	return x.to(kShutLook, said)
}

func (x *quickExec) step() (said string, optional bool) {
	s, t := &x.s, x.t
	undertaker := x.me == quickThreads
	var want uint8
	var h *quickShare
	if !undertaker {
		want, h = x.wants[x.me], &s.share[x.me]
	}
	switch t.pc {
	case kIdle:
		switch {
		case undertaker && x.due(s):
			return x.to(kEnter, "looks")
		case undertaker:
			return "", false
		case t.has:
			return x.to(kReleaseLook, "releases")
		}
		x.to(kAcquireLook, "")
		return "acquires", true
	case kAcquireLook:
		if t.seen = h.quick; !(t.known || x.bug == quickAnyName) || !t.seen.canAcquire(uint64(want)) {
			t.seen = 0
			return x.to(kEnter, "cannot acquire at once")
		}
		return x.to(kAcquire, "sees spare permits")
	case kAcquire:
		seen := t.seen
		t.seen = 0
		if h.quick != seen {
			return x.to(kAcquireLook, "fails to acquire")
		}
		h.quick, t.has = seen.acquire(uint64(want)), true
		return x.to(kIdle, "acquires at once")
	case kReleaseLook:
		if t.seen = h.quick; !t.known || !t.seen.canRelease(uint64(want)) {
			t.seen = 0
			return x.to(kEnter, "cannot release at once")
		}
		return x.to(kRelease, "sees used permits")
	case kRelease:
		seen := t.seen
		t.seen = 0
		if h.quick != seen {
			return x.to(kReleaseLook, "fails to release")
		}
		h.quick, t.has = seen.release(uint64(want)), false
		return x.to(kIdle, "releases at once")
	case kEnter:
		switch s.latch {
		case 0:
			s.latch = uint8(x.me + 1)
			return x.to(kSweep, "takes the latch")
		case quickNobody:
			s.latch = uint8(x.me + 1)
			return x.to(kMend, "takes the latch from the dead")
		}
		return "", false
	case kMend:
		if s.log.valid {
			g := &s.share[s.log.share]
			s.free, g.permits, g.quick = s.log.free, s.log.permits, s.log.quick
			s.log = quickLog{}
		}
		t.at, t.sum = 0, 0
		return x.to(kCount, "does what the log says")
	case kCount:
		if int(t.at) < len(x.wants) {
			g := &s.share[t.at]
			t.sum += g.permits
			if x.bug != quickCountsPart {
				t.sum += uint8(g.quick.permits())
			}
			t.at++
			return x.to(kCount, "counts a share")
		}
		return x.to(kCounted, "has counted")
	case kCounted:
		s.free = x.size - min(t.sum, x.size)
		t.at, t.sum = 0, 0
		return x.to(kSweep, "makes free anew")
	case kSweep:
		for i := range x.wants {
			if x.stale(s, i) {
				if x.bug == quickBuriesPart {
					s.free += s.share[i].permits
					s.share[i] = quickShare{name: s.thread[i].name}
					return x.to(kSweep, "takes back from the dead")
				}
				if s.share[i].quick != 0 {
					return x.close(uint8(i), kSweep, "buries")
				}
				s.free += s.share[i].permits
				s.share[i].permits = 0
				return x.to(kSweep, "takes back from the dead")
			}
		}
		kept := 0
		for i, q := range s.queue {
			if q != 0 && s.queued[i] == s.thread[q-1].name {
				s.queue[kept], s.queued[kept] = q, s.queued[i]
				kept++
			}
		}
		clear(s.queue[kept:])
		clear(s.queued[kept:])
		return x.to(kSwept, "sweeps the queue")
	case kSwept:
		if q := s.queue[0]; q != 0 && s.free >= x.wants[q-1] {
			x.grant(q - 1)
			return x.to(kSwept, "lets one go")
		}
		switch {
		case undertaker || t.gave:
			return x.to(kLeave, "has let go who can go")
		case t.has:
			return x.close(uint8(x.me), kGive, "is about to give")
		}
		return x.to(kBody, "is about to take")
	case kBody:
		switch {
		case s.queue[0] == 0 && s.free >= want && h.name != t.name:
			return x.to(kInherit, "inherits the share")
		case s.queue[0] == 0 && s.free >= want:
			return x.to(kTake, "can take")
		case x.bug == quickQueuesOpen:
			return x.to(kGathered, "cannot take")
		}
		t.at = 0
		return x.to(kGather, "gathers")
	case kInherit:
		// Its one before was swept: nothing is left there.
		h.permits, h.quick = 0, 0
		return x.to(kName, "empties it")
	case kName:
		h.name = t.name
		return x.to(kTake, "names it")
	case kTake:
		if h.quick.open() {
			h.quick += quickWord(want)
		} else {
			h.permits += want
		}
		t.has = true
		return x.to(kTaken, "counts itself")
	case kTaken:
		s.free -= want
		return x.to(kLeave, "takes")
	case kGather:
		for ; int(t.at) < len(x.wants); t.at++ {
			if s.opened>>t.at&1 != 0 && s.share[t.at].quick != 0 {
				return x.close(t.at, kGather, "gathers a share")
			}
		}
		t.at, s.opened = 0, 0
		return x.to(kGathered, "has gathered")
	case kGathered:
		if s.queue[0] == 0 && s.free >= want {
			return x.to(kBody, "can take")
		}
		for i := range s.queue {
			if s.queue[i] == 0 {
				s.queue[i], s.queued[i] = uint8(x.me+1), t.name
				break
			}
		}
		s.latch = 0
		return x.to(kAsleep, "queues, and leaves the latch")
	case kShutLook:
		t.seen = s.share[t.at].quick
		switch {
		case t.seen == 0:
			return x.to(t.back, "finds it closed")
		case !t.seen.open() || x.bug == quickFoldsOpen:
			t.seen &^= quickOpen
			return x.to(kLog, "finds it half open")
		}
		return x.to(kShut, "sees it open")
	case kShut:
		g := &s.share[t.at]
		if g.quick != t.seen && x.bug != quickShutsPlain {
			return x.to(kShutLook, "fails to close it")
		}
		t.seen &^= quickOpen
		g.quick = t.seen
		return x.to(kLog, "closes it")
	case kLog:
		g := &s.share[t.at]
		s.log = quickLog{x.bug != quickHasNoLog, t.at, s.free + uint8(t.seen.spare()), g.permits + uint8(t.seen.used()), 0}
		return x.to(kApplyFree, "writes the log")
	case kApplyFree:
		s.free = s.log.free
		return x.to(kApplyPermits, "fills free")
	case kApplyPermits:
		s.share[s.log.share].permits = s.log.permits
		return x.to(kApplyQuick, "fills permits")
	case kApplyQuick:
		s.share[s.log.share].quick = s.log.quick
		return x.to(kUnlog, "fills quick")
	case kUnlog:
		s.log = quickLog{}
		t.seen = 0
		return x.to(t.back, "drops the log")
	case kGive:
		if h.name != t.name || h.permits < want {
			s.free = quickNobody // an error that check finds
			return x.to(kIdle, "has no permits")
		}
		h.permits -= want
		t.has, t.gave = false, true
		return x.to(kGiven, "uncounts itself")
	case kGiven:
		s.free += want
		switch {
		case s.queue[0] != 0 && x.bug != quickOpensQueued:
			return x.to(kSwept, "gives, and looks at the queue")
		case s.last != t.name<<4|uint8(x.me):
			s.last = t.name<<4 | uint8(x.me)
			return x.to(kLeave, "gives")
		}
		return x.to(kOpen, "gives, as the last time")
	case kOpen:
		s.opened |= 1 << x.me
		return x.to(kOpenLog, "marks its share")
	case kOpenLog:
		q := makeQuick(uint64(h.permits), uint64(want))
		free := s.free - want
		if x.bug == quickSpareTwice {
			free = s.free
		}
		s.log = quickLog{true, uint8(x.me), free, 0, q}
		t.back = kOpened
		return x.to(kApplyFree, "writes the log")
	case kOpened:
		h.quick |= quickOpen
		t.known = true
		return x.to(kLeave, "opens its share")
	case kLeave:
		s.latch = 0
		t.back, t.at, t.gave = 0, 0, false
		return x.to(kIdle, "leaves the latch")
	case kAsleep:
		return "", false
	}
	panic("no such step")
}

func (x *quickExec) grant(i uint8) {
	s := &x.s
	h := &s.share[i]
	if h.name != s.thread[i].name {
		*h = quickShare{name: s.thread[i].name}
	}
	h.permits += x.wants[i]
	s.free -= x.wants[i]
	s.thread[i].has, s.thread[i].pc, s.thread[i].back = true, kIdle, 0
	copy(s.queue[:], s.queue[1:])
	copy(s.queued[:], s.queued[1:])
	s.queue[quickThreads-1], s.queued[quickThreads-1] = 0, 0
}

func (m *quickModel) check(s *quickState) error {
	had, rest := uint8(0), s.latch == 0 && !m.due(s)
	for i, n := range m.wants {
		t := &s.thread[i]
		if t.has {
			had += n
		}
		rest = rest && (t.pc == kIdle || t.pc == kAsleep)
	}
	if had > m.size {
		return errQuickTooMany
	}
	if s.free == quickNobody {
		return errQuickWrong
	}
	if !rest || s.thread[quickThreads].pc != kIdle {
		return nil
	}
	sum, spare := s.free, uint8(0)
	for i, n := range m.wants {
		h := &s.share[i]
		sum += h.permits + uint8(h.quick.permits())
		spare += uint8(h.quick.spare())
		if used := h.permits + uint8(h.quick.used()); s.thread[i].has != (used != 0) || used != 0 && used != n {
			return errQuickWrong
		}
	}
	if sum != m.size {
		return errQuickLost
	}
	if q := s.queue[0]; q != 0 && s.free+spare >= m.wants[q-1] {
		return errQuickSleeps
	}
	return nil
}

func (m *quickModel) done(s *quickState) bool {
	for i := range m.wants {
		if s.thread[i].pc != kIdle {
			return false
		}
	}
	return s.thread[quickThreads].pc == kIdle && !m.due(s)
}

func (m *quickModel) show(s *quickState) string {
	return fmt.Sprintf("latch %d, free %d, shares %v, opened %b, queue %v, log %+v", s.latch, s.free, s.share[:len(m.wants)], s.opened, s.queue, s.log)
}

// Acquires and releases without the latch, those who close shares, and deaths at each
// step of either.
func TestModelSemaphoreQuick(t *testing.T) {
	bugs := []bug{
		quickShutsPlain, quickQueuesOpen, quickOpensQueued, quickFoldsOpen, quickSpareTwice,
	}
	deaths := append(bugs, quickAnyName, quickCountsPart, quickHasNoLog, quickBuriesPart)
	scarce := quickModel{wants: []uint8{1, 1}, size: 1}
	mixed := quickModel{wants: []uint8{1, 1}, size: 2}
	dies := quickModel{wants: []uint8{1, 1}, size: 1, kills: 1}
	both := quickModel{wants: []uint8{1, 2}, size: 2, kills: 2}
	three := quickModel{wants: []uint8{1, 2, 1}, size: 2}
	requireModels(t, []exploration{
		{"two for one permit", small, scarce.explore, bugs},
		{"two for two permits", small, mixed.explore, []bug{quickSpareTwice}},
		{"two, one dies", small, dies.explore, nil},
		{"two, two deaths", medium, both.explore, deaths},
		{"three", medium, three.explore, nil},
	})
}
