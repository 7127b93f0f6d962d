//go:build linux

package arenakernel

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// TestOpenTakesPath: a name that contains a slash is the path of a file, as in the C library and in
// shmctl.
func TestOpenTakesPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "arena")
	_, err := Attach(path, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	a, err := Open(path, &Options{Size: 2 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	defer a.Close()
	require.Equal(t, path, a.Path())
	b, err := Attach(path, nil)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	_, err = Create(path, &Options{Size: 2 << 20})
	require.ErrorIs(t, err, fs.ErrExist)
}

// TestRemoveIsRefusedWhileAProcessIsIn: while a process is in the arena, Remove fails without
// removing the file. The error names the process.
func TestRemoveIsRefusedWhileAProcessIsIn(t *testing.T) {
	ta := newTestArena(t, 4)
	require.ErrorIs(t, Remove(ta.name), fs.ErrNotExist)
	r := ta.join(t, "keeper")
	err := Remove(ta.name)
	require.ErrorIs(t, err, syscall.EBUSY)
	require.ErrorContains(t, err, "keeper")
	require.FileExists(t, ta.path())
	own, err := Open(ta.name, nil)
	require.NoError(t, err)
	r.Signal(t, syscall.SIGKILL)
	r.WaitSignal(t, syscall.SIGKILL)
	require.ErrorIs(t, Remove(ta.name), syscall.EBUSY)
	require.NoError(t, own.Close())
	require.NoError(t, Remove(ta.name))
	require.NoFileExists(t, ta.path())
}

// TestRemoveOfALongNameWithLettersOfSeveralBytes: Remove gives the file a private name first. That
// name is cut to a number of bytes, not of letters. Otherwise a file with a long name could not be
// removed.
func TestRemoveOfALongNameWithLettersOfSeveralBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("\u00e9", 120))
	a, err := Open(path, &Options{Size: 1 << 20})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, Remove(path))
	require.NoFileExists(t, path)
}

// TestRemoveRefusesOtherFiles: Remove does not remove a file that is not an arena.
func TestRemoveRefusesOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	require.NoError(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	require.ErrorIs(t, Remove(path), shmsync.ErrIncompatible)
	require.FileExists(t, path)
}

// TestFirstParticipantBeginsAnEpoch: only the first participant of each epoch runs OnFirst.
func TestFirstParticipantBeginsAnEpoch(t *testing.T) {
	ta := newTestArena(t, 4)
	var got []Epoch
	ta.opts.OnFirst = func(a *Arena, e Epoch) error {
		got = append(got, e)
		return nil
	}
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.Equal(t, []Epoch{{Number: 1, Clean: true}}, got)
	b, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	r := ta.join(t, "victim")
	require.Len(t, got, 1)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	c, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.NoError(t, c.Close())
	r.Signal(t, syscall.SIGKILL)
	r.WaitSignal(t, syscall.SIGKILL)
	d, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.EqualValues(t, 2, got[1].Number)
	require.False(t, got[1].Clean)
	require.Len(t, got[1].Dead, 1)
	require.Equal(t, "victim", got[1].Dead[0].Label)
	require.NoError(t, d.Close())
	d, err = Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.Equal(t, Epoch{Number: 3, Clean: true}, got[2])
	require.NoError(t, d.Close())
}

// TestDeathRecordThatIsNotWholeLeavesTheArenaClean: a reaper that dies while it writes a death
// record leaves a record without a number. Such a record does not make a clean arena unclean.
func TestDeathRecordThatIsNotWholeLeavesTheArenaClean(t *testing.T) {
	ta := newTestArena(t, 4)
	ta.join(t, "before").close(t)
	ta.peek(t).u64(hdrDeathRecordsTotal).Add(1)
	firsts := 0
	ta.opts.OnFirst = func(_ *Arena, e Epoch) error {
		firsts++
		require.Equal(t, Epoch{Number: 2, Clean: true}, e)
		return nil
	}
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.Equal(t, 1, firsts)
}

// TestOnFirstThatFailsIsRunByTheNext: if OnFirst fails, Open fails. The next participant is then
// the first participant of the same epoch.
func TestOnFirstThatFailsIsRunByTheNext(t *testing.T) {
	ta := newTestArena(t, 4)
	why := errors.New("no reason")
	ta.opts.OnFirst = func(*Arena, Epoch) error { return why }
	_, err := Open(ta.name, &ta.opts)
	require.ErrorIs(t, err, why)
	var got Epoch
	ta.opts.OnFirst = func(_ *Arena, e Epoch) error { got = e; return nil }
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Number)
	require.NoError(t, a.Close())
	require.PanicsWithValue(t, "oh", func() {
		Open(ta.name, &Options{OnFirst: func(*Arena, Epoch) error { panic("oh") }})
	})
	a, err = Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.EqualValues(t, 2, got.Number)
	require.NoError(t, a.Close())
}

// TestPanicOfOnFirstLeavesNoDescriptor checks that an Open whose OnFirst panics or ends its goroutine has closed all
// descriptors of the file. Recreate has a descriptor of its own, so that no other file gets the inode number.
func TestPanicOfOnFirstLeavesNoDescriptor(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":  func() { panic("oh") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestArena(t, 4)
			a, err := Open(ta.name, &ta.opts)
			require.NoError(t, err)
			id := a.id
			require.NoError(t, a.Close())
			ran := false
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				Open(ta.name, &Options{Recreate: RecreateCorrupt, OnFirst: func(*Arena, Epoch) error {
					ran = true
					end()
					return nil
				}})
			}()
			<-done
			require.True(t, ran)
			fds, err := descriptorsOf(id)
			require.NoError(t, err)
			require.Empty(t, fds)
		})
	}
}

// TestRecreateIncompatible: with RecreateIncompatible, Open replaces an arena that has other
// parameters, if no process is in it.
func TestRecreateIncompatible(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	other := Options{Size: 4 << 20, Recreate: RecreateIncompatible}
	_, err = Open(ta.name, &other)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorIs(t, err, syscall.EBUSY)
	require.NoError(t, a.Close())
	_, err = Open(ta.name, &Options{Size: 8 << 20})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	a, err = Open(ta.name, &other)
	require.NoError(t, err)
	require.EqualValues(t, 4<<20, a.Size())
	require.NoError(t, a.Close())
	// An arena with another layout version.
	overwrite(t, ta.path(), hdrVersion, 99)
	_, err = Open(ta.name, &Options{Recreate: RecreateCorrupt})
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	a, err = Open(ta.name, &other)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	// An arena with a damaged header.
	overwrite(t, ta.path(), hdrSlots, 3)
	_, err = Open(ta.name, &other)
	require.ErrorIs(t, err, shmsync.ErrCorrupt)
	a, err = Open(ta.name, &Options{Recreate: RecreateCorrupt})
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

// fragileKind is a kind whose Check calls checkFragile.
var (
	fragileKind  = KindOf("FRAG")
	checkFragile func() error
)

func init() {
	RegisterKind(KindOps{Kind: fragileKind, Version: 1, Check: func(*Arena, Object) error { return checkFragile() }})
}

// TestRecreateCorruptNeedsLastingDamage: a participant that reaps changes the arena while Open checks it. A single
// check may take these changes for damage. Open must not replace the arena because of one such check.
func TestRecreateCorruptNeedsLastingDamage(t *testing.T) {
	ta := newTestArena(t, 4)
	open := func(recreate Recreate) (created bool) {
		opts := ta.opts
		opts.Recreate = recreate
		a, err := Open(ta.name, &opts)
		require.NoError(t, err)
		defer a.Close()
		_, created, err = a.OpenObject(ObjectSpec{Kind: fragileKind, Version: 1, Name: "x", Size: 8})
		require.NoError(t, err)
		return created
	}
	require.True(t, open(0))
	checks := 0
	checkFragile = func() error {
		if checks++; checks == 1 {
			return shmsync.ErrCorrupt
		}
		return nil
	}
	require.False(t, open(RecreateCorrupt), "Open must keep the arena, with its object")
	require.Equal(t, 2, checks)
	checkFragile = func() error { return shmsync.ErrCorrupt }
	require.True(t, open(RecreateCorrupt), "Open must replace the arena, so the object is new")
}

func overwrite(t *testing.T, path string, off int64, b byte) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte{b}, off)
	require.NoError(t, err)
}

// TestRecreateUnclean: with RecreateUnclean, an epoch that follows a death begins with an empty
// arena.
func TestRecreateUnclean(t *testing.T) {
	ta := newTestArena(t, 4)
	r := ta.join(t, "victim")
	ta.opts.Recreate = RecreateUnclean
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	_, err = a.Block("kept", 64)
	require.NoError(t, err)
	id := a.id
	require.NoError(t, a.Close())
	r.Signal(t, syscall.SIGKILL)
	r.WaitSignal(t, syscall.SIGKILL)
	a, err = Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.NotEqual(t, id, a.id)
	require.NoError(t, a.Close())
	a, err = Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

// TestEphemeral: the last Close removes an ephemeral arena. If it could not remove the arena, the
// next epoch begins with an empty one.
func TestEphemeral(t *testing.T) {
	ta := newTestArena(t, 4)
	r := ta.join(t, "victim")
	ta.opts.Lifetime = LifetimeEphemeral
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.FileExists(t, ta.path())
	a, err = Open(ta.name, &ta.opts)
	require.NoError(t, err)
	id := a.id
	_, err = a.Block("kept", 64)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	r.Signal(t, syscall.SIGKILL)
	r.WaitSignal(t, syscall.SIGKILL)
	a, err = Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.NotEqual(t, id, a.id)
	require.NoError(t, a.Close())
	require.NoFileExists(t, ta.path())
}

// TestOnDetached: a process is told when another program has removed the file of its arena.
func TestOnDetached(t *testing.T) {
	ta := newTestArena(t, 4)
	told := make(chan struct{})
	ta.opts.OnDetached = func() { close(told) }
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	require.NoError(t, shm.Remove(ta.name))
	<-told
}

// TestOwnRemovalIsNotReported: OnDetached is not called for a removal after Close has begun, such as that of an ephemeral
// arena by its last Close.
func TestOwnRemovalIsNotReported(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	require.NoError(t, shm.Remove(ta.name))
	stop, tick := make(chan struct{}), make(chan time.Time)
	close(stop)
	close(tick)
	for range 64 { // the first select of checkName takes one of the two channels at random
		a.checkName(stop, tick, func() { t.Fatal("OnDetached is called") })
	}
	told := false
	a.checkName(nil, tick, func() { told = true })
	require.True(t, told)
}

// TestClaimThatGivesUpKeepsAClaimedEpoch: the first participant of an arena has died in OnFirst, and
// its process has not ended yet. So a later claim gives up. After that, the arena must not count as
// new, because OnFirst may have changed it.
func TestClaimThatGivesUpKeepsAClaimedEpoch(t *testing.T) {
	ta := newTestArena(t, 4)
	require.NoError(t, os.WriteFile(ta.path(), formatted(t, 2<<20, 4), 0o600))
	seg, err := shm.Open(ta.name, nil)
	require.NoError(t, err)
	defer seg.Close()
	n := makeParticipantID(1, 1)
	word := makeEpochWord(epochClaimed, 1, n)
	c := core{memory: newMemory(seg.Bytes())}
	c.geo, err = validate(seg.Bytes()[:headerSize], uint64(seg.Size()), ta.name)
	require.NoError(t, err)
	c.u64(hdrEpoch).Store(uint64(word))
	c.u32(c.slot(1) + slotState).Store(uint32(makeSlotWord(phaseDead, 1) | heldByte))
	locked, err := shmsync.LockByte(seg.File(), int64(c.slot(1))) // as if the process had not ended
	require.NoError(t, err)
	require.True(t, locked)
	_, err = tryRemove(ta.path(), nil, nil)
	require.ErrorIs(t, err, syscall.EBUSY)
	require.Equal(t, word, epochWord(c.u64(hdrEpoch).Load()))
}

// TestErrorOfOnFirstReplacesNothing: whatever error OnFirst returns, Open does not replace the
// arena, because that error says nothing about the arena.
func TestErrorOfOnFirstReplacesNothing(t *testing.T) {
	ta, tb := newTestArena(t, 4), newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	id := a.id
	require.NoError(t, a.Close())
	b, err := Open(tb.name, &tb.opts)
	require.NoError(t, err)
	defer b.Close()
	for _, give := range []func() error{
		func() error { _, err := Open(tb.name, &Options{Size: 2 * int64(b.Size())}); return err },
		func() error { return shmsync.ErrCorrupt },
	} {
		calls := 0
		var why error
		_, err = Open(ta.name, &Options{Recreate: RecreateIncompatible | RecreateCorrupt, OnFirst: func(*Arena, Epoch) error {
			calls++
			if calls == 1 {
				why = give()
			}
			return why
		}})
		require.ErrorIs(t, err, why)
		require.Equal(t, 1, calls)
	}
	a, err = Open(ta.name, nil)
	require.NoError(t, err)
	require.Equal(t, id, a.id)
	require.NoError(t, a.Close())
}

// TestFromSegmentOfARemovedArena: a segment whose arena was removed cannot be joined.
func TestFromSegmentOfARemovedArena(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	seg, err := shm.Open(ta.name, nil)
	require.NoError(t, err)
	require.NoError(t, Remove(ta.name))
	_, err = FromSegment(seg, nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "removed")
}

// TestOnFirstDoesNotWaitForItself: OnFirst cannot open or close its own arena. Such a call returns
// an error that says so, and does not block.
func TestOnFirstDoesNotWaitForItself(t *testing.T) {
	ta := newTestArena(t, 4)
	ran := 0
	opts := ta.opts
	opts.OnFirst = func(a *Arena, _ Epoch) error {
		ran++
		opens := []func() (*Arena, error){
			func() (*Arena, error) { return Open(ta.name, nil) },
			func() (*Arena, error) { return Attach(ta.path(), nil) },
			func() (*Arena, error) {
				seg, err := shm.Open(ta.name, nil)
				require.NoError(t, err)
				return FromSegment(seg, nil)
			},
		}
		for _, open := range opens {
			_, err := open()
			require.ErrorIs(t, err, syscall.EDEADLK)
			require.ErrorContains(t, err, "its OnFirst opens it, and would wait for itself")
		}
		require.ErrorIs(t, a.Close(), syscall.EDEADLK)
		_, err := a.Alloc(64, 8)
		return err
	}
	a, err := Open(ta.name, &opts)
	require.NoError(t, err)
	require.Equal(t, 1, ran)
	b, err := Open(ta.name, nil)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	require.NoError(t, a.Check())
	require.NoError(t, a.Close())
}

// TestRefusedGateEndsTheJoin: a joiner has its slot, and the kernel refuses the byte lock of the gate although no
// process has this lock. The join returns the error of the kernel, and does not wait for the gate.
func TestRefusedGateEndsTheJoin(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	admission := a.u32(a.slot(a.mySlot) + slotAdmission)
	readOnly, err := os.Open(ta.path()) // through this descriptor, the kernel refuses an exclusive lock
	require.NoError(t, err)
	defer readOnly.Close()
	lock := a.lock
	a.lock = readOnly
	admission.Store(admissionPending)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // ends a wait
	err = a.admit(ctx, &Options{}, false)
	a.lock = lock
	require.EqualValues(t, admissionPending, admission.Load())
	admission.Store(admissionIn)
	require.ErrorIs(t, err, syscall.EBADF)
	require.ErrorContains(t, err, "could not take the gate")
}

// TestAnotherGoroutineWaitsForOnFirst: another goroutine that opens the arena during OnFirst waits,
// as another process would.
func TestAnotherGoroutineWaitsForOnFirst(t *testing.T) {
	ta := newTestArena(t, 4)
	opts, done := ta.opts, make(chan error)
	opts.OnFirst = func(a *Arena, _ Epoch) error {
		go func() {
			b, err := Open(ta.name, nil)
			if err == nil {
				err = b.Close()
			}
			done <- err
		}()
		return nil
	}
	a, err := Open(ta.name, &opts)
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.NoError(t, a.Close())
}
