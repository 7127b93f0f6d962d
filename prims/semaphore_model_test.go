//go:build linux

package prims

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shmsync/shmsync/internal/model"
)

// fastModel is a Semaphore and what its participants do without the queue lock: one thread
// each, which acquires what it wants and releases it, over and over. A killed thread is
// followed at once by another in its slot, with a name of its own; the reap of the dead one
// comes at any time. How a wait ends is the model of the monitor: here a grant is one step.
type fastModel struct {
	wants []uint8
	size  uint8
	kills uint8
	bug   bug
}

const (
	fastThreads = 3 // and the reaper
	fastNobody  = 255
)

type fastState struct {
	queueLock uint8 // 0, the number of its holder, or fastNobody: its holder died
	free      uint8
	share     [fastThreads]fastShare
	opened    uint8 // bits of shares
	last      uint8 // name
	log       fastLog
	queue     [fastThreads]uint8 // threads, numbered from 1
	queued    [fastThreads]uint8 // and their names
	thread    [fastThreads + 1]fastThread
	kills     uint8
}

type fastShare struct {
	name    uint8
	permits uint8
	fast    fastWord
}

// fastLog is the redo log: what a share and free become.
type fastLog struct {
	valid         bool
	share         uint8
	free, permits uint8
	fast          fastWord
}

type fastThread struct {
	pc    uint8
	back  uint8 // where it goes on when a share is closed
	at    uint8 // the share that it deals with
	sum   uint8 // what it has counted
	name  uint8
	seen  fastWord
	known bool // its share was opened under its name
	has   bool
	gave  bool // it has the queue lock, and has released
}

const (
	kIdle uint8 = iota
	kAcquireLook
	kAcquire
	kReleaseLook
	kRelease
	kEnter
	kReplay
	kCount
	kCounted
	kReap
	kReaped
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
	kApplyFast
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
	fastAnyName     bug = "a newcomer uses what its slot has"
	fastShutsPlain  bug = "a share is closed by a store of what was seen"
	fastQueuesOpen  bug = "a waiter queues and closes nothing"
	fastCountsPart  bug = "a process that replays the log counts permits only"
	fastHasNoLog    bug = "a share is closed without a log"
	fastReapsPart   bug = "a reap takes permits back only"
	fastOpensQueued bug = "a share is opened though somebody is queued"
	fastFoldsOpen   bug = "a share is emptied while it is open"
	fastSpareTwice  bug = "what is spare is left in free"
)

var (
	errFastTooMany = errors.New("more permits are had than there are")
	errFastLost    = errors.New("permits are lost, or made")
	errFastSleeps  = errors.New("somebody sleeps though its permits are free")
	errFastWrong   = errors.New("who has permits cannot release them")
)

func (m fastModel) explore(b bug) model.Result {
	m.bug = b
	first := fastState{free: m.size}
	for i := range m.wants {
		first.thread[i].name = 1
	}
	spec := model.Spec[fastState]{Init: []fastState{first}, Next: m.next, Check: m.check, Done: m.done, Show: m.show}
	return spec.Explore()
}

func (m *fastModel) next(s *fastState, emit func(model.Step[fastState])) {
	for i := 0; i <= len(m.wants); i++ {
		me := i
		if i == len(m.wants) {
			me = fastThreads
		}
		x := fastExec{fastModel: m, s: *s, me: me}
		x.t = &x.s.thread[me]
		if said, optional := x.step(); said != "" {
			emit(model.Step[fastState]{To: x.s, By: fmt.Sprintf("%c", 'P'+me), Label: said, Optional: optional})
		}
	}
	for i := range m.wants {
		if s.kills == m.kills {
			break
		}
		to := *s
		to.kills++
		to.thread[i] = fastThread{name: s.thread[i].name + 1}
		if to.queueLock == uint8(i+1) {
			to.queueLock = fastNobody
		}
		emit(model.Step[fastState]{To: to, By: fmt.Sprintf("%c", 'P'+i), Label: "is killed, and followed", Optional: true})
	}
}

type fastExec struct {
	*fastModel
	s  fastState
	t  *fastThread
	me int
}

// stale reports whether a share is that of a dead one.
func (m *fastModel) stale(s *fastState, i int) bool {
	h := &s.share[i]
	return h.name != 0 && h.name != s.thread[i].name && (h.permits != 0 || h.fast != 0)
}

// due reports whether a death has left something.
func (m *fastModel) due(s *fastState) bool {
	if s.queueLock == fastNobody {
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

func (x *fastExec) to(pc uint8, said string) (string, bool) { x.t.pc = pc; return said, false }

// close goes on to close a share, and then with pc.
func (x *fastExec) close(share, pc uint8, said string) (string, bool) {
	x.t.at, x.t.back = share, pc
	return x.to(kShutLook, said)
}

func (x *fastExec) step() (said string, optional bool) {
	s, t := &x.s, x.t
	reaper := x.me == fastThreads
	var want uint8
	var h *fastShare
	if !reaper {
		want, h = x.wants[x.me], &s.share[x.me]
	}
	switch t.pc {
	case kIdle:
		switch {
		case reaper && x.due(s):
			return x.to(kEnter, "looks")
		case reaper:
			return "", false
		case t.has:
			return x.to(kReleaseLook, "releases")
		}
		x.to(kAcquireLook, "")
		return "acquires", true
	case kAcquireLook:
		if t.seen = h.fast; !(t.known || x.bug == fastAnyName) || !t.seen.canAcquire(uint64(want)) {
			t.seen = 0
			return x.to(kEnter, "cannot acquire at once")
		}
		return x.to(kAcquire, "sees spare permits")
	case kAcquire:
		seen := t.seen
		t.seen = 0
		if h.fast != seen {
			return x.to(kAcquireLook, "fails to acquire")
		}
		h.fast, t.has = seen.acquire(uint64(want)), true
		return x.to(kIdle, "acquires at once")
	case kReleaseLook:
		if t.seen = h.fast; !t.known || !t.seen.canRelease(uint64(want)) {
			t.seen = 0
			return x.to(kEnter, "cannot release at once")
		}
		return x.to(kRelease, "sees used permits")
	case kRelease:
		seen := t.seen
		t.seen = 0
		if h.fast != seen {
			return x.to(kReleaseLook, "fails to release")
		}
		h.fast, t.has = seen.release(uint64(want)), false
		return x.to(kIdle, "releases at once")
	case kEnter:
		switch s.queueLock {
		case 0:
			s.queueLock = uint8(x.me + 1)
			return x.to(kReap, "takes the queue lock")
		case fastNobody:
			s.queueLock = uint8(x.me + 1)
			return x.to(kReplay, "takes the queue lock from the dead")
		}
		return "", false
	case kReplay:
		if s.log.valid {
			g := &s.share[s.log.share]
			s.free, g.permits, g.fast = s.log.free, s.log.permits, s.log.fast
			s.log = fastLog{}
		}
		t.at, t.sum = 0, 0
		return x.to(kCount, "does what the log says")
	case kCount:
		if int(t.at) < len(x.wants) {
			g := &s.share[t.at]
			t.sum += g.permits
			if x.bug != fastCountsPart {
				t.sum += uint8(g.fast.permits())
			}
			t.at++
			return x.to(kCount, "counts a share")
		}
		return x.to(kCounted, "has counted")
	case kCounted:
		s.free = x.size - min(t.sum, x.size)
		t.at, t.sum = 0, 0
		return x.to(kReap, "makes free anew")
	case kReap:
		for i := range x.wants {
			if x.stale(s, i) {
				if x.bug == fastReapsPart {
					s.free += s.share[i].permits
					s.share[i] = fastShare{name: s.thread[i].name}
					return x.to(kReap, "takes back from the dead")
				}
				if s.share[i].fast != 0 {
					return x.close(uint8(i), kReap, "reaps")
				}
				s.free += s.share[i].permits
				s.share[i].permits = 0
				return x.to(kReap, "takes back from the dead")
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
		return x.to(kReaped, "reaps the queue")
	case kReaped:
		if q := s.queue[0]; q != 0 && s.free >= x.wants[q-1] {
			x.grant(q - 1)
			return x.to(kReaped, "lets one go")
		}
		switch {
		case reaper || t.gave:
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
		case x.bug == fastQueuesOpen:
			return x.to(kGathered, "cannot take")
		}
		t.at = 0
		return x.to(kGather, "gathers")
	case kInherit:
		// Its one before was reaped: nothing is left there.
		h.permits, h.fast = 0, 0
		return x.to(kName, "empties it")
	case kName:
		h.name = t.name
		return x.to(kTake, "names it")
	case kTake:
		if h.fast.open() {
			h.fast += fastWord(want)
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
			if s.opened>>t.at&1 != 0 && s.share[t.at].fast != 0 {
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
		s.queueLock = 0
		return x.to(kAsleep, "queues, and leaves the queue lock")
	case kShutLook:
		t.seen = s.share[t.at].fast
		switch {
		case t.seen == 0:
			return x.to(t.back, "finds it closed")
		case !t.seen.open() || x.bug == fastFoldsOpen:
			t.seen &^= fastOpen
			return x.to(kLog, "finds it half open")
		}
		return x.to(kShut, "sees it open")
	case kShut:
		g := &s.share[t.at]
		if g.fast != t.seen && x.bug != fastShutsPlain {
			return x.to(kShutLook, "fails to close it")
		}
		t.seen &^= fastOpen
		g.fast = t.seen
		return x.to(kLog, "closes it")
	case kLog:
		g := &s.share[t.at]
		s.log = fastLog{x.bug != fastHasNoLog, t.at, s.free + uint8(t.seen.spare()), g.permits + uint8(t.seen.used()), 0}
		return x.to(kApplyFree, "writes the log")
	case kApplyFree:
		s.free = s.log.free
		return x.to(kApplyPermits, "fills free")
	case kApplyPermits:
		s.share[s.log.share].permits = s.log.permits
		return x.to(kApplyFast, "fills permits")
	case kApplyFast:
		s.share[s.log.share].fast = s.log.fast
		return x.to(kUnlog, "fills fast")
	case kUnlog:
		s.log = fastLog{}
		t.seen = 0
		return x.to(t.back, "drops the log")
	case kGive:
		if h.name != t.name || h.permits < want {
			s.free = fastNobody // an error that check finds
			return x.to(kIdle, "has no permits")
		}
		h.permits -= want
		t.has, t.gave = false, true
		return x.to(kGiven, "uncounts itself")
	case kGiven:
		s.free += want
		switch {
		case s.queue[0] != 0 && x.bug != fastOpensQueued:
			return x.to(kReaped, "gives, and looks at the queue")
		case s.last != t.name<<4|uint8(x.me):
			s.last = t.name<<4 | uint8(x.me)
			return x.to(kLeave, "gives")
		}
		return x.to(kOpen, "gives, as the last time")
	case kOpen:
		s.opened |= 1 << x.me
		return x.to(kOpenLog, "marks its share")
	case kOpenLog:
		q := makeFast(uint64(h.permits), uint64(want))
		free := s.free - want
		if x.bug == fastSpareTwice {
			free = s.free
		}
		s.log = fastLog{true, uint8(x.me), free, 0, q}
		t.back = kOpened
		return x.to(kApplyFree, "writes the log")
	case kOpened:
		h.fast |= fastOpen
		t.known = true
		return x.to(kLeave, "opens its share")
	case kLeave:
		s.queueLock = 0
		t.back, t.at, t.gave = 0, 0, false
		return x.to(kIdle, "leaves the queue lock")
	case kAsleep:
		return "", false
	}
	panic("no such step")
}

func (x *fastExec) grant(i uint8) {
	s := &x.s
	h := &s.share[i]
	if h.name != s.thread[i].name {
		*h = fastShare{name: s.thread[i].name}
	}
	h.permits += x.wants[i]
	s.free -= x.wants[i]
	s.thread[i].has, s.thread[i].pc, s.thread[i].back = true, kIdle, 0
	copy(s.queue[:], s.queue[1:])
	copy(s.queued[:], s.queued[1:])
	s.queue[fastThreads-1], s.queued[fastThreads-1] = 0, 0
}

func (m *fastModel) check(s *fastState) error {
	had, rest := uint8(0), s.queueLock == 0 && !m.due(s)
	for i, n := range m.wants {
		t := &s.thread[i]
		if t.has {
			had += n
		}
		rest = rest && (t.pc == kIdle || t.pc == kAsleep)
	}
	if had > m.size {
		return errFastTooMany
	}
	if s.free == fastNobody {
		return errFastWrong
	}
	if !rest || s.thread[fastThreads].pc != kIdle {
		return nil
	}
	sum, spare := s.free, uint8(0)
	for i, n := range m.wants {
		h := &s.share[i]
		sum += h.permits + uint8(h.fast.permits())
		spare += uint8(h.fast.spare())
		if used := h.permits + uint8(h.fast.used()); s.thread[i].has != (used != 0) || used != 0 && used != n {
			return errFastWrong
		}
	}
	if sum != m.size {
		return errFastLost
	}
	if q := s.queue[0]; q != 0 && s.free+spare >= m.wants[q-1] {
		return errFastSleeps
	}
	return nil
}

func (m *fastModel) done(s *fastState) bool {
	for i := range m.wants {
		if s.thread[i].pc != kIdle {
			return false
		}
	}
	return s.thread[fastThreads].pc == kIdle && !m.due(s)
}

func (m *fastModel) show(s *fastState) string {
	return fmt.Sprintf("latch %d, free %d, shares %v, opened %b, queue %v, log %+v", s.queueLock, s.free, s.share[:len(m.wants)], s.opened, s.queue, s.log)
}

// Acquires and releases without the queue lock, processes that close shares, and deaths at
// each step of either.
func TestModelSemaphoreFast(t *testing.T) {
	bugs := []bug{
		fastShutsPlain, fastQueuesOpen, fastOpensQueued, fastFoldsOpen, fastSpareTwice,
	}
	deaths := append(bugs, fastAnyName, fastCountsPart, fastHasNoLog, fastReapsPart)
	scarce := fastModel{wants: []uint8{1, 1}, size: 1}
	mixed := fastModel{wants: []uint8{1, 1}, size: 2}
	dies := fastModel{wants: []uint8{1, 1}, size: 1, kills: 1}
	both := fastModel{wants: []uint8{1, 2}, size: 2, kills: 2}
	three := fastModel{wants: []uint8{1, 2, 1}, size: 2}
	requireModels(t, []exploration{
		{"two for one permit", small, scarce.explore, bugs},
		{"two for two permits", small, mixed.explore, []bug{fastSpareTwice}},
		{"two, one dies", small, dies.explore, nil},
		{"two, two deaths", large, both.explore, deaths},
		{"three", large, three.explore, nil},
	})
}
