//go:build linux

package cinterop

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// A hand is one way in which data passes from a dead process to a living one. For example, each kind of lock with each
// policy is a hand.
type hand struct {
	name string
	open order // creates the object
	take order // takes the object and its data; in a survivor, this order waits until the victim has died
	// If take ends with ErrOwnerDead, the order recover takes the data.
	recover order
	// While the dead process keeps the data, the order in try fails with the error in busy.
	try  order
	busy syscall.Errno
	// timed returns the order in take, with a deadline of ms milliseconds.
	timed func(ms int) order
}

func verb(v string, args ...any) order {
	o := order{verb: v}
	for _, a := range args {
		o.args = append(o.args, fmt.Sprint(a))
	}
	return o
}

// give starts an order of the agent on the object.
func (x *agent) give(t testing.TB, o order) pending {
	t.Helper()
	args := make([]any, len(o.args))
	for i, a := range o.args {
		args[i] = a
	}
	return x.start(t, o.verb, "x", args...)
}

// hands returns all hands.
func hands() (all []hand) {
	for _, k := range []string{"mutex", "fair", "rw", "spin", "rwspin"} {
		try := "try"
		if k == "mutex" {
			try = "trylock"
		}
		h := hand{name: k + "/report", open: verb(k+".open", 1), take: verb(k + ".lock"), recover: verb(k + ".recover"),
			try: verb(k + "." + try), busy: syscall.EOWNERDEAD, timed: func(ms int) order { return verb(k+".lock", ms) }}
		all = append(all, h)
		h.name, h.open, h.recover.verb, h.busy = k+"/release", verb(k+".open", 2), "", syscall.EBUSY
		all = append(all, h)
	}
	key := hand{name: "multi/report", open: verb("multi.open", 1, 1), take: verb("multi.lock", 7), recover: verb("multi.recover", 7),
		try: verb("multi.try", 7), busy: syscall.EOWNERDEAD, timed: func(ms int) order { return verb("multi.lock", 7, ms) }}
	all = append(all, key)
	key.name, key.open, key.recover.verb, key.busy = "multi/release", verb("multi.open", 2, 1), "", syscall.EBUSY
	all = append(all, key)
	return append(all,
		hand{name: "sem", open: verb("sem.open", 1), take: verb("sem.acquire", 1), try: verb("sem.try", 1), busy: syscall.EBUSY,
			timed: func(ms int) order { return verb("sem.acquire", 1, ms) }},
		hand{name: "queue", open: verb("queue.open", 1), take: verb("queue.lease"), try: verb("queue.tryget"), busy: syscall.EBUSY,
			timed: func(ms int) order { return verb("queue.lease", ms) }},
		hand{name: "sync", open: verb("sync.open", 1), take: verb("sync.take"), try: verb("sync.try", 1), busy: syscall.ETIMEDOUT,
			timed: func(ms int) order { return verb("sync.take", ms) }},
		hand{name: "tx", open: verb("tx.open"), take: verb("tx.hold"), try: verb("tx.try"), busy: syscall.EBUSY,
			timed: func(ms int) order { return verb("tx.begin", ms) }},
		hand{name: "future", open: verb("future.open"), take: verb("future.claim"), recover: verb("future.reset"),
			try: verb("future.claim"), busy: syscall.EBUSY, timed: func(ms int) order { return verb("future.wait", ms) }},
		hand{name: "latch", open: verb("latch.open", 1), take: verb("latch.claim", 1), recover: verb("latch.reset"),
			timed: func(ms int) order { return verb("latch.wait", ms) }},
		hand{name: "wg", open: verb("wg.open"), take: verb("wg.add", 1), recover: verb("wg.reset"),
			timed: func(ms int) order { return verb("wg.wait", ms) }},
		hand{name: "barrier", open: verb("barrier.open", 2), take: verb("barrier.join", 1), recover: verb("barrier.reset", 1),
			timed: func(ms int) order { return verb("barrier.aw", ms) }},
	)
}

// begin creates the object of a hand. If the object is a queue, begin puts an item into it.
func (h hand) begin(t testing.TB, x *agent) {
	t.Helper()
	x.give(t, h.open).must(t)
	if h.name == "queue" {
		x.do(t, "queue.put", "x", 1)
	}
}

// bigFile makes a file in memory that is full of bytes 0xff, and returns its path.
func bigFile(t testing.TB, size int) string {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "cinterop")
	require.NoError(t, err)
	t.Cleanup(func() { os.Remove(f.Name()) })
	_, err = f.Write(bytes.Repeat([]byte{0xff}, size))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return f.Name()
}

func bigArena(t testing.TB, size int) string {
	t.Helper()
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 4<<20 + int64(size)*5/4, MaxParticipants: 16})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	return name
}

// handOver kills a victim that holds an object and reads a file into the data by a system call. A survivor then takes
// the object. handOver returns how many pages of the data changed after that.
func handOver(t *testing.T, h hand, arenaName, file string, size int, survivor *agent) uint64 {
	victim := newAgent(t, "c", arenaName, "victim")
	h.begin(t, survivor)
	victim.give(t, h.take).must(t)
	if h.name == "barrier" {
		survivor.do(t, "barrier.join", "x", 1)
	}
	before := survivor.do(t, "gone.rounds", "data", size)
	victim.start(t, "gone.read", "data", size, file)
	eventually(t, "it reads", arenaName, func() bool { return survivor.do(t, "gone.rounds", "data", size) > before })
	wait := survivor.give(t, h.timed(forever))
	pause := syscall.NsecToTimespec(rand.Int64N(2e6))
	syscall.Nanosleep(&pause, nil)
	require.NoError(t, victim.cmd.Process.Kill())
	if h.recover.verb != "" {
		wait.fails(t, syscall.EOWNERDEAD)
		survivor.give(t, h.recover).must(t)
	} else {
		wait.must(t)
	}
	survivor.do(t, "gone.stamp", "data", size)
	victim.ends(t)
	victim.cmd.Wait()
	return survivor.do(t, "gone.check", "data", size)
}

// The locks, leases and claims of a process pass on only after its last store. A system call that reads a file
// into the arena still stores after the process was killed.
func TestDataIsHandedOverAfterTheLastStore(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	file := bigFile(t, size)
	for _, lang := range []string{"c", "go"} {
		for _, h := range hands() {
			t.Run(lang+"/"+h.name, func(t *testing.T) {
				name := bigArena(t, size)
				require.Zero(t, handOver(t, h, name, file, size, newAgent(t, lang, name, "survivor")))
			})
		}
	}
}

// Environment settings by which a victim declares how its system calls write into the arena. With synchronousIO, a
// system call writes there only until its thread returns from it. With asynchronousIO, system calls that belong to no
// thread may write there, too. With noKernelIO, no system call writes there.
const (
	synchronousIO  = "SHMSYNC_CINTEROP_KERNEL_IO=0"
	asynchronousIO = "SHMSYNC_CINTEROP_KERNEL_IO=1"
	noKernelIO     = "SHMSYNC_CINTEROP_KERNEL_IO=2"
)

// dying starts a victim, has it take the object of h, and kills it. A child of the victim keeps the byte lock of the
// victim until the test closes the input of the victim. Without settings in env, the victim is not gone before that.
func (h hand) dying(t *testing.T, arenaName string, survivor *agent, env ...string) (victim *agent) {
	if len(env) == 0 {
		env = []string{asynchronousIO}
	}
	victim = newAgent(t, "c", arenaName, "victim", env...)
	h.begin(t, survivor)
	victim.give(t, h.take).must(t)
	if h.name == "barrier" {
		survivor.do(t, "barrier.join", "x", 1)
	}
	victim.do(t, "gone.fork", "x")
	// Do not wait for the process, because then the threads of the process could no longer be examined.
	require.NoError(t, victim.cmd.Process.Kill())
	victim.ends(t)
	return victim
}

// A process was killed, and its parent has waited for it. Other processes then get what the process had, even while its
// byte lock is still held. The kernel may keep the memory of a process for a while, and with it the byte lock. In the
// test, a child of the process keeps the byte lock. The survivor is stopped until the parent has waited, so it cannot
// examine the threads of the process.
func TestWaitedForIsGone(t *testing.T) {
	for _, h := range hands() {
		for _, lang := range []string{"c", "go"} {
			t.Run(lang+"/"+h.name, func(t *testing.T) {
				x := newAgent(t, lang, newArena(t), "survivor")
				victim := newAgent(t, "c", x.arena, "victim")
				h.begin(t, x)
				victim.give(t, h.take).must(t)
				if h.name == "barrier" {
					x.do(t, "barrier.join", "x", 1)
				}
				victim.do(t, "gone.fork", "x")
				x.stop(t)
				victim.kill(t)
				require.NoError(t, x.cmd.Process.Signal(syscall.SIGCONT))
				if h.recover.verb != "" {
					x.give(t, h.timed(forever)).fails(t, syscall.EOWNERDEAD)
				}
				x.give(t, h.has(forever)).must(t)
			})
		}
	}
}

// A Claim takes over the work of a process that was killed, but only when this process certainly executes no more
// instructions. In this test, three things make that uncertain. The victim is not registered for membarrier, as happens
// for a while after a join. The claimant cannot examine the threads of the victim. A child of the victim keeps its byte
// lock.
func TestClaimAwaitsADeath(t *testing.T) {
	for _, kind := range []string{"latch", "wg"} {
		for _, lang := range []string{"c", "go"} {
			t.Run(lang+"/"+kind, func(t *testing.T) {
				x := newAgent(t, lang, newArena(t), "claimant", "SHMSYNC_DISABLE=threads")
				victim := newAgent(t, "c", x.arena, "victim", "SHMSYNC_DISABLE=membarrier")
				if kind == "latch" {
					x.do(t, "latch.open", "x", 3)
					victim.do(t, "latch.claim", "x", 3)
				} else {
					x.do(t, "wg.open", "x")
					x.do(t, "wg.add", "x", 3)
					victim.do(t, "wg.claim", "x", 3)
				}
				victim.do(t, "gone.fork", "x")
				victim.kill(t)
				claims := x.start(t, kind+".claim", "x", 3)
				x.start(t, "futex.wait", "never", 1, 20).fails(t, syscall.ETIMEDOUT) // some time later
				select {
				case a := <-claims.c:
					t.Fatalf("%v, while the dead one may write", a)
				default:
				}
				victim.in.Close() // ends the child that keeps the byte lock of the victim
				claims.must(t)
				x.start(t, kind+".claim", "x", 1).fails(t, syscall.EINVAL)
			})
		}
	}
}

// has returns the order by which a survivor gets the data: recover, or timed(ms) if the hand has no recover.
func (h hand) has(ms int) order {
	if h.recover.verb != "" {
		return h.recover
	}
	return h.timed(ms)
}

var forever = int(timeout / 1e6)

// No thread of a killed process runs any more, but the process has not ended. Survivors repair its words at once,
// but nobody gets its data yet.
func TestWordsBeforeData(t *testing.T) {
	t.Parallel()
	for _, h := range hands() {
		for _, lang := range []string{"c", "go"} {
			t.Run(lang+"/"+h.name, func(t *testing.T) { h.wordsBeforeData(t, lang) })
		}
	}
}

func (h hand) wordsBeforeData(t *testing.T, lang string) {
	name := newArena(t)
	x := newAgent(t, lang, name, "survivor")
	victim := h.dying(t, name, x)
	if h.recover.verb != "" {
		x.give(t, h.timed(forever)).fails(t, syscall.EOWNERDEAD)
	} else {
		x.give(t, h.timed(20)).fails(t, syscall.ETIMEDOUT)
	}
	if h.try.verb != "" {
		x.give(t, h.try).fails(t, h.busy)
	}
	has := x.give(t, h.has(forever))
	x.start(t, "futex.wait", "never", 1, 20).fails(t, syscall.ETIMEDOUT) // some time later
	select {
	case a := <-has.c:
		t.Fatalf("%s: %v, while the dead one may write", has.what, a)
	default:
	}
	victim.in.Close() // ends the child that keeps the byte lock of the victim
	has.must(t)
	sound(t, name)
}

// A process that has declared noKernelIO is gone as soon as it is dead. A process that has declared synchronousIO is
// gone when its threads have ended. In both cases survivors do not wait for the byte lock, which a child of the victim
// keeps.
func TestDataPassesOnBeforeTheByteLockIsFree(t *testing.T) {
	t.Parallel()
	for declared, env := range map[string]string{"none": noKernelIO, "synchronous": synchronousIO} {
		for _, h := range hands() {
			for _, lang := range []string{"c", "go"} {
				t.Run(declared+"/"+lang+"/"+h.name, func(t *testing.T) {
					name := newArena(t)
					x := newAgent(t, lang, name, "survivor")
					h.dying(t, name, x, env)
					if h.recover.verb != "" {
						x.give(t, h.timed(forever)).fails(t, syscall.EOWNERDEAD)
					}
					x.give(t, h.has(forever)).must(t)
				})
			}
		}
	}
}

// The data of a dead process may pass on before the process has ended, but its slot stays in use until then. The kernel
// may still mark words of the slot, or finish a system call that belongs to no thread.
func TestSlotOfADeadOneIsKeptUntilItEnds(t *testing.T) {
	const phaseDead, phaseFree = 4, 0
	for _, lang := range []string{"c", "go"} {
		t.Run(lang, func(t *testing.T) {
			name := newArena(t)
			x := newAgent(t, lang, name, "survivor")
			watcher := newAgent(t, "c", name, "watcher")
			watcher.do(t, "arena.watch", "x")
			h := hand{name: "mutex", open: verb("mutex.open", 2), take: verb("mutex.lock")}
			victim := h.dying(t, name, x, synchronousIO)
			x.give(t, verb("mutex.lock", forever)).must(t)
			eventually(t, "the death is told", name, func() bool { return watcher.do(t, "arena.deaths", "x") == 1 })
			watcher.start(t, "futex.wait", "never", 1, 20).fails(t, syscall.ETIMEDOUT) // some time later
			const slot = 3                                                             // the victim was the third to join
			require.EqualValues(t, phaseDead, watcher.do(t, "gone.slot", "x", slot))
			victim.in.Close()
			eventually(t, "the slot is free", name, func() bool { return watcher.do(t, "gone.slot", "x", slot) == phaseFree })
		})
	}
}

// If a process opens an arena several times, the most general of its declarations about system calls applies.
func TestKernelIOOfSeveralOpenings(t *testing.T) {
	for opening, kinds := range map[string][2]string{
		"asynchronous first": {asynchronousIO, "0"}, "asynchronous second": {synchronousIO, "1"}, "after none": {noKernelIO, "1"},
	} {
		t.Run(opening, func(t *testing.T) {
			name := newArena(t)
			x, victim := newAgent(t, "c", name, "survivor"), newAgent(t, "c", name, "victim", kinds[0])
			x.do(t, "mutex.open", "x", 2)
			victim.do(t, "mutex.lock", "x")
			victim.do(t, "gone.reopen", "x", kinds[1])
			victim.do(t, "gone.fork", "x")
			victim.kill(t)
			x.start(t, "mutex.lock", "x", 20).fails(t, syscall.ETIMEDOUT)
		})
	}
}

// A process that is dead but not gone keeps its slot and its open objects. Its death is reported all the same.
func TestDeadOneKeepsItsSlot(t *testing.T) {
	const phaseDead, phaseFree = 4, 0
	for _, lang := range []string{"c", "go"} {
		t.Run(lang, func(t *testing.T) {
			name := newArena(t)
			x, victim := newAgent(t, "c", name, "survivor"), newAgent(t, "c", name, "victim", asynchronousIO)
			watcher := newAgent(t, lang, name, "watcher")
			watcher.do(t, "arena.watch", "x")
			victim.do(t, "gone.rounds", "data", 64) // opens the block
			slot := victim.do(t, "arena.slot", "x")
			victim.do(t, "gone.fork", "x")
			victim.kill(t)
			eventually(t, "the death is told", name, func() bool { return watcher.do(t, "arena.deaths", "x") == 1 })
			x.start(t, "gone.delete", "data").fails(t, syscall.EBUSY)
			x.start(t, "futex.wait", "never", 1, 20).fails(t, syscall.ETIMEDOUT) // some time later
			require.EqualValues(t, phaseDead, x.do(t, "gone.slot", "x", slot))
			victim.in.Close()
			eventually(t, "the slot is free", name, func() bool { return x.do(t, "gone.slot", "x", slot) == phaseFree })
			x.do(t, "gone.delete", "data")
			require.EqualValues(t, 1, watcher.do(t, "arena.deaths", "x"))
			sound(t, name)
		})
	}
}

// Reaping has two stages. A reaper dies or is stopped between the stages, or in the second one. Another survivor then
// gets the locks of the dead participant.
func TestReaperEndsBetweenTheStages(t *testing.T) {
	for _, h := range hands() {
		if h.name != "mutex/report" && !strings.HasSuffix(h.name, "/release") && h.name != "sem" && h.name != "queue" {
			continue
		}
		for _, how := range []string{"between", "SHMSYNC_CRASHPOINT=arena.reap.handed_over", "SHMSYNC_CRASHPOINT_STOP=arena.reap.handed_over"} {
			if testing.Short() && how != "between" && h.name != "sem" {
				continue
			}
			t.Run(h.name+"/"+how, func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, "c", name, "survivor")
				var env []string
				if how != "between" {
					env = []string{how}
				}
				reaper := newAgent(t, "c", name, "reaper", env...)
				reaper.mortal = true
				reaper.do(t, "arena.watch", "x")
				victim := h.dying(t, name, x)
				eventually(t, "it has reaped the words", name, func() bool { return reaper.do(t, "arena.deaths", "x") == 1 })
				if h.recover.verb != "" {
					x.give(t, h.timed(forever)).fails(t, syscall.EOWNERDEAD)
				}
				has := x.give(t, h.has(forever))
				if how == "between" {
					reaper.kill(t)
				}
				victim.in.Close()
				has.must(t)
				if how != "between" {
					require.NoError(t, reaper.cmd.Process.Kill())
				}
				sound(t, name)
			})
		}
	}
}

// The recover call of a lock waits until the dead holder is gone, but only while the owner word names this holder.
// After a change of the word, another participant may have the ID of the holder. The call must not wait for that
// participant.
func TestRecoverWaitsWhileTheWordNamesTheDead(t *testing.T) {
	for _, h := range hands() {
		kind, report := strings.CutSuffix(h.name, "/report")
		if !report {
			continue
		}
		for _, lang := range []string{"c", "go"} {
			t.Run(lang+"/"+kind, func(t *testing.T) {
				name := newArena(t)
				x := newAgent(t, lang, name, "survivor")
				victim := h.dying(t, name, x)
				x.give(t, h.timed(forever)).fails(t, syscall.EOWNERDEAD)
				off := x.give(t, h.open).must(t)
				recovers := x.give(t, h.recover)
				x.start(t, "futex.wait", "never", 1, 20).fails(t, syscall.ETIMEDOUT) // some time later
				forgetOwner(t, name, off, "victim")
				recovers.must(t)
				victim.in.Close() // ends the child that keeps the byte lock of the victim
			})
		}
	}
}

// forgetOwner makes a lock free. It sets the word that names a dead owner with the given label to 0. A process that
// recovers the lock and unlocks it changes the word in the same way.
func forgetOwner(t *testing.T, name string, off uint64, label string) {
	t.Helper()
	const kindShift, ownerDead, slotBits = 29, 3, 11
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	k := (*arenakernel.Arena)(a)
	o, err := k.ObjectAt(arenakernel.Offset(off))
	require.NoError(t, err)
	defer k.CloseObject(o)
	var dead uint32
	for p := range a.Participants() {
		if p.Label == label {
			dead = uint32(p.Slot) | p.Generation<<slotBits
		}
	}
	require.NotZero(t, dead)
	found := 0
	for at := o.Offset; at < o.Body+arenakernel.Offset(o.Size); at += 4 { // the header has the gate of an RWMutex
		w := arena.At[atomic.Uint32](a, at)
		if w.Load() != dead|ownerDead<<kindShift {
			continue
		}
		found++
		w.Store(0)
	}
	require.Equal(t, 1, found, "words that name the dead owner")
}
