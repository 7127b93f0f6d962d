//go:build linux

package cinterop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

// slotWords is the part of a slot whose words say which generation the slot has. The test writes these words directly:
// see docs/abi.md.
type slotWords []byte

const (
	lastGeneration = 1<<18 - 1
	liveSlot       = 2       // the phase of a slot whose participant is alive
	deadSlot       = 4       // the phase of a slot whose participant is dead
	heldByte       = 1 << 21 // the participant has the byte lock
)

func slotIn(t *testing.T, name string, slot int) slotWords {
	seg, err := shm.Open(name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { seg.Close() })
	return slotWords(seg.Bytes()[4096+2048*(slot-1):])
}

func (s slotWords) generation() uint32 { return binary.LittleEndian.Uint32(s) >> 3 & lastGeneration }
func (s slotWords) isFree() bool       { return binary.LittleEndian.Uint32(s)&7 == 0 }

// window returns the first and the last generation of the slot's window, and the number of the window.
func (s slotWords) window() [3]uint64 {
	w := binary.LittleEndian.Uint64(s[248:])
	return [3]uint64{w & lastGeneration, w >> 18 & lastGeneration, w >> 36}
}

// set makes the slot free, as if its last participant had the given generation and had left nothing to clean up.
func (s slotWords) set(generation uint32) {
	binary.LittleEndian.PutUint32(s[220:], generation) // reclaimed
	clear(s[1280:1792])                                // touched
	binary.LittleEndian.PutUint32(s, generation<<3)
}

// openCore makes a C program join an arena and leave it. It returns the output, and whether the join succeeded.
func openCore(t *testing.T, name string) (says string, ok bool) {
	out, _ := exec.Command(program(t, "core.c"), "open", name).CombinedOutput()
	return string(out), strings.HasPrefix(string(out), "0 ")
}

// openGo makes this process join an arena and leave it. It returns the error text, and whether the join
// succeeded.
func openGo(t *testing.T, name string) (says string, ok bool) {
	a, err := arena.Attach(name, nil)
	if err != nil {
		return err.Error(), false
	}
	require.NoError(t, a.Close())
	return "", true
}

// requireWindow requires that a slot has the window want, or a part of it. A renewal searches the arena for IDs of the
// slot, and leaves their generations out of the window. It may take other bytes, such as those of a clock, for an ID.
// So a bound may differ from want if the generation beside it is in an ID in the arena, or is the parameter had, the
// last one of the slot.
func requireWindow(t *testing.T, name string, slot int, had uint32, want [3]uint64) {
	t.Helper()
	seg, err := shm.Open(name, nil)
	require.NoError(t, err)
	defer seg.Close()
	named := func(generation uint64) bool {
		id := uint32(generation)<<11 | uint32(slot)
		for at := 0; at < len(seg.Bytes()); at += 4 {
			if w := binary.LittleEndian.Uint32(seg.Bytes()[at:]); w&(1<<29-1) == id || w>>3 == id {
				return true
			}
		}
		return generation == uint64(had)
	}
	got := slotIn(t, name, slot).window()
	says := fmt.Sprintf("slot %d has the window %v, and is to have %v", slot, got, want)
	require.Equal(t, want[2], got[2], says)
	require.True(t, want[0] <= got[0] && got[0] <= got[1] && got[1] <= want[1], says)
	require.True(t, got[0] == want[0] || named(got[0]-1), says)
	require.True(t, got[1] == want[1] || named(got[1]+1), says)
}

// Joiners of both languages compute the same windows from the same bytes. The slots are used up. In some steps, another
// participant is in the arena, or a word names one of the slots. In some steps, the arena has no participant.
func TestWindowVectors(t *testing.T) {
	const attempts = 5 // in one of the arenas the bytes of a clock may look like an ID
	for n := 1; ; n++ {
		c, g := windowsAfterJoins(t, openCore), windowsAfterJoins(t, openGo)
		if n < attempts && !slices.Equal(c, g) {
			t.Logf("attempt %d: C has %v, Go has %v", n, c, g)
			continue
		}
		require.Equal(t, c, g)
		return
	}
}

// windowsAfterJoins returns the windows of all slots after each step.
func windowsAfterJoins(t *testing.T, open func(*testing.T, string) (string, bool)) (windows [][3]uint64) {
	name := unusedName(t)
	made, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 3})
	require.NoError(t, err)
	stays := newAgent(t, "c", name, "stays")
	slots := []slotWords{slotIn(t, name, 1), slotIn(t, name, 2), slotIn(t, name, 3)}
	note := func() { windows = append(windows, slots[0].window(), slots[1].window(), slots[2].window()) }
	slots[2].set(99999)
	dies := newAgent(t, "go", name, "dies")
	require.EqualValues(t, 100000, slots[2].generation())
	dies.do(t, "mutex.open", "m", 1)
	dies.do(t, "mutex.lock", "m")
	dies.kill(t)
	stays.do(t, "mutex.open", "m", 1)
	stays.start(t, "mutex.lock", "m").fails(t, syscall.EOWNERDEAD) // the word of the mutex still names the dead owner
	eventually(t, "the slot is free", name, slots[2].isFree)
	require.NoError(t, made.Close())
	slots[0].set(lastGeneration)
	slots[2].set(lastGeneration)
	says, ok := open(t, name)
	require.True(t, ok, says)
	note()
	requireWindow(t, name, 1, lastGeneration, [3]uint64{2, lastGeneration, 1})
	require.Equal(t, [3]uint64{0, 0, 0}, slots[1].window())
	requireWindow(t, name, 3, lastGeneration, [3]uint64{100001, lastGeneration - 1, 1})
	stays.do(t, "mutex.recover", "m") // this participant is still in
	stays.do(t, "mutex.lock", "m")

	stays.kill(t)
	// A program that leaves at once may leave its cleanup to the next program.
	eventually(t, "what it had is taken back", name, func() bool {
		says, ok = open(t, name)
		require.True(t, ok, says)
		return slots[0].isFree() && slots[1].isFree() && slots[2].isFree()
	})
	first, third := uint32(slots[0].window()[1]), uint32(slots[2].window()[1])
	slots[0].set(first)
	slots[1].set(lastGeneration)
	slots[2].set(third)
	says, ok = open(t, name)
	require.True(t, ok, says)
	note()
	require.EqualValues(t, 1, slots[1].window()[2])
	require.EqualValues(t, 2, slots[0].window()[2])
	requireWindow(t, name, 3, third, [3]uint64{100001, lastGeneration, 2})
	require.EqualValues(t, slots[0].window()[0], slots[0].generation(), "it entered the window")

	// Only a joiner that cleans up may use the last generations of a window. After the cleanup, it gives the slot back
	// and joins again.
	for _, s := range slots {
		s.set(uint32(s.window()[1]))
	}
	binary.LittleEndian.PutUint64(slots[0][248:], 2|lastGeneration<<18|7<<36)
	binary.LittleEndian.PutUint32(slots[0], (lastGeneration-5)<<3|liveSlot|heldByte)
	says, ok = open(t, name)
	require.True(t, ok, says)
	note()
	require.EqualValues(t, 8, slots[0].window()[2])
	require.EqualValues(t, slots[0].window()[0], slots[0].generation())
	sound(t, name)
	return windows
}

// Programs of both languages join, leave, and are killed, in an arena whose slots are used up every few joins.
// Each gets an ID of its own, and no lock has two holders.
func TestWindowsOfBothLanguages(t *testing.T) {
	name := unusedName(t)
	made, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 2})
	require.NoError(t, err)
	require.NoError(t, made.Close())
	slots := []slotWords{slotIn(t, name, 1), slotIn(t, name, 2)}
	for round := range proctest.Rounds(6, 60) {
		// This process stays until the killed programs are reaped. Without it, each program might leave the
		// reaping to the next one.
		reaper, err := arena.Attach(name, nil)
		require.NoError(t, err)
		eventually(t, "the killed are reaped", name, func() bool { return slots[0].isFree() || slots[1].isFree() })
		require.NoError(t, reaper.Close())
		require.True(t, slots[0].isFree() && slots[1].isFree())
		for _, s := range slots { // leave generations for a few joins in the window of the slot
			w := s.window()
			if w[1] == 0 {
				w[1] = lastGeneration
			}
			s.set(uint32(w[1]) - 256 - uint32(round%3))
		}
		lang := []string{"go", "c", "c", "go"}[round%4]
		one := newAgent(t, lang, name, "one")
		two := newAgent(t, "c", name, "two")
		one.do(t, "mutex.open", "m", 1)
		two.do(t, "mutex.open", "m", 1)
		switch err := one.start(t, "mutex.lock", "m").wait(t).err; err {
		case 0:
		case syscall.EOWNERDEAD:
			one.do(t, "mutex.recover", "m")
			one.do(t, "mutex.lock", "m")
		default:
			require.FailNow(t, "lock", "%v", err)
		}
		if round%2 == 0 {
			one.kill(t)
			two.start(t, "mutex.lock", "m").fails(t, syscall.EOWNERDEAD)
			two.kill(t)
		} else {
			two.kill(t)
			one.do(t, "mutex.unlock", "m")
			one.kill(t)
		}
		for range 2 {
			says, ok := openCore(t, name)
			require.True(t, ok, says)
		}
	}
	t.Logf("slots were renewed %d and %d times", slots[0].window()[2], slots[1].window()[2])
	require.GreaterOrEqual(t, slots[0].window()[2]+slots[1].window()[2], uint64(3))
	sound(t, name)
}

// A C program is killed at each step of the renewal of a slot. The next program completes the renewal.
func TestKillRenewing(t *testing.T) {
	core := program(t, "core.c")
	n := 0
	for _, point := range points(t) {
		if !strings.HasPrefix(point, "arena.renew.") {
			continue
		}
		n++
		t.Run(point, func(t *testing.T) {
			name := unusedName(t)
			a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 1})
			require.NoError(t, err)
			require.NoError(t, a.Close())
			slot := slotIn(t, name, 1)
			for lap := range 2 {
				number := slot.window()[2]
				last := uint32(lastGeneration)
				if w := slot.window(); w[1] != 0 {
					last = uint32(w[1])
				}
				slot.set(last)
				if lap == 1 || strings.HasPrefix(point, "arena.renew.step") { // make the last participant of the slot dead
					slot.set(last - 1)
					binary.LittleEndian.PutUint32(slot, (last-1)<<3|liveSlot|heldByte)
				}
				killCore(t, point, core, "open", name)
				says, ok := openCore(t, name)
				require.True(t, ok, says)
				w := slot.window()
				require.Equal(t, number+1, w[2])
				require.Less(t, slot.generation()-uint32(w[0]), uint32(3), fmt.Sprint(w, slot.generation()))
			}
			sound(t, name)
		})
	}
	require.Equal(t, 4, n)
}

// A C program has found that it gets the first generation of a window, and is stopped. Meanwhile other programs use up
// the window. When the program continues, it leaves the slot clean, and renews it.
func TestLateJoinerOfACProgram(t *testing.T) {
	name := unusedName(t)
	made, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 1})
	require.NoError(t, err)
	require.NoError(t, made.Close())
	slot := slotIn(t, name, 1)
	slot.set(50)
	binary.LittleEndian.PutUint64(slot[248:], 60|90<<18|1<<36)
	var out bytes.Buffer
	cmd := exec.Command(program(t, "core.c"), "open", name)
	cmd.Env = append(os.Environ(), "SHMSYNC_CRASHPOINT_STOP=arena.enter.locked")
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	(&agent{cmd: cmd, label: "the late one", arena: name}).awaitStop(t)
	slot.set(90)
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, cmd.Wait(), "%s", &out)
	require.True(t, strings.HasPrefix(out.String(), "0 "), "%s", &out)
	require.Equal(t, [3]uint64{91, lastGeneration, 2}, slot.window())
	require.EqualValues(t, 91, slot.generation())
	sound(t, name)
}

// A C program is stopped while it takes a lock from a dead participant. Meanwhile the slot of the dead participant goes
// through a whole window of generations. If the program has published the ID of the dead participant in its act word,
// no joiner of either language gets this ID. Otherwise a joiner gets the ID and locks the lock, and keeps the lock when
// the program continues.
func TestActOfACProgramLastsForAWindow(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"arena.act.begun", "arena.act.published", "arena.act.verified"} {
		for lang, open := range map[string]func(*testing.T, string) (string, bool){"c": openCore, "go": openGo} {
			t.Run(point+"/"+lang, func(t *testing.T) {
				var (
					name                     string
					survivor, victim, member *agent
					slot                     slotWords
				)
				begin := func() (locks pending) {
					name = unusedName(t)
					made, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 4})
					require.NoError(t, err)
					survivor, victim = newAgent(t, "go", name, "survivor"), newAgent(t, "go", name, "victim")
					member = newAgent(t, "c", name, "member", "SHMSYNC_CRASHPOINT_STOP="+point)
					require.NoError(t, made.Close())
					slot = slotIn(t, name, 3)
					require.EqualValues(t, 1, slot.generation())
					for _, x := range []*agent{survivor, victim, member} {
						x.do(t, "mutex.open", "m", 2)
					}
					victim.do(t, "mutex.lock", "m")
					locks = member.start(t, "mutex.lock", "m")
					survivor.stop(t)
					victim.kill(t)
					member.awaitStop(t)
					return locks
				}
				locks := begin()
				// The death watcher of the member may pass the crash point first. Then another thread of the member may
				// get the lock before the process stops, and the test begins again.
				for end := time.Now().Add(timeout); strings.Contains(describe(name), "m: held by 4.1"); {
					require.True(t, time.Now().Before(end), "the member has the lock each time")
					for _, x := range []*agent{survivor, member} {
						x.kill(t)
					}
					locks = begin()
				}
				require.NoError(t, survivor.cmd.Process.Signal(syscall.SIGCONT))
				eventually(t, "the slot is free", name, slot.isFree)
				survivor.do(t, "mutex.lock", "m") // the word no longer names the dead holder
				survivor.do(t, "mutex.unlock", "m")

				seg, err := shm.Open(name, nil)
				require.NoError(t, err)
				defer seg.Close()
				records := binary.LittleEndian.Uint64(seg.Bytes()[96:])
				for k := range uint64(256) { // clear the death records, because an ID in a death record is left out of the window
					clear(seg.Bytes()[records+128*k+8:][:4])
				}
				slot.set(lastGeneration)
				binary.LittleEndian.PutUint64(slot[248:], 2|lastGeneration<<18|1<<36)
				for slot.window()[2] == 1 {
					says, ok := open(t, name)
					require.True(t, ok, says)
				}
				first := uint64(1)
				if point != "arena.act.begun" {
					first = 2
				}
				requireWindow(t, name, 3, lastGeneration, [3]uint64{first, lastGeneration - 1, 2})
				first = slot.window()[0]
				fill := newAgent(t, lang, name, "has the first slot")
				again := newAgent(t, lang, name, "again")
				require.EqualValues(t, first, slot.generation())
				again.do(t, "mutex.open", "m", 2)
				again.do(t, "mutex.lock", "m")
				require.NoError(t, member.cmd.Process.Signal(syscall.SIGCONT))
				member.do(t, "mutex.open", "other", 2) // the member goes on
				survivor.start(t, "mutex.trylock", "m").fails(t, syscall.EBUSY)
				again.do(t, "mutex.unlock", "m")
				locks.must(t)
				fill.kill(t)
				sound(t, name)
			})
		}
	}
}
