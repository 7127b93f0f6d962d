//go:build linux

package cinterop

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// A recordedLock is a FairMutex, or the key 7 of a MultiLock, that the processes of a test use.
type recordedLock struct {
	kind   string // prefix of its verbs
	arena  string
	memory *os.File // of the arena
	off    uint64
	place  int // offset of its owner word in the body
}

var recordedLocks = map[string]int{"fair": 8, "multi": 128 + 16 + 16}

func (l *recordedLock) open(t *testing.T, x *agent, policy int) {
	l.off = x.do(t, l.kind+".open", "x", policy, 1) // a MultiLock gets one bucket
}
func (l *recordedLock) start(t *testing.T, x *agent, verb string) pending {
	return x.start(t, l.kind+"."+verb, "x", l.args()...)
}
func (l *recordedLock) do(t *testing.T, x *agent, verb string) {
	t.Helper()
	l.start(t, x, verb).must(t)
}
func (l *recordedLock) blocked(t *testing.T, x *agent, n uint64) pending {
	t.Helper()
	return x.blocked(t, l.off, n, l.kind+".lock", "x", l.args()...)
}
func (l *recordedLock) args() []any {
	if l.kind == "multi" {
		return []any{7}
	}
	return nil
}

// word returns the recorded word at a place of the body.
func (l *recordedLock) word(t *testing.T, place int) uint64 {
	t.Helper()
	var v [8]byte
	_, err := l.memory.ReadAt(v[:], int64(l.off)+64+int64(place))
	require.NoError(t, err)
	return binary.LittleEndian.Uint64(v[:])
}

func (l *recordedLock) overwrite(t *testing.T, place int, v uint64) {
	t.Helper()
	_, err := l.memory.WriteAt(binary.LittleEndian.AppendUint64(nil, v), int64(l.off)+64+int64(place))
	require.NoError(t, err)
}

// holder returns the kind of the owner word, and the participant that the word names.
func (l *recordedLock) holder(t *testing.T) (kind, name uint32) {
	v := l.word(t, l.place)
	return uint32(v >> 61), uint32(v>>32) & (1<<29 - 1)
}

// tear overwrites a link in a queue of two waits: the link from the second wait to the first.
func (l *recordedLock) tear(t *testing.T) {
	t.Helper()
	var torn int
	asPeer(t, l.arena, l.off, func(a *arena.Arena, o arenakernel.Object) {
		(*arenakernel.Arena)(a).EachNode(o.Offset, func(_ arena.Offset, n *arenakernel.Node) {
			if n.Extra().Load()>>32 != 0 {
				n.Extra().Store(1 << 63)
				torn++
			}
		})
	})
	require.Equal(t, 1, torn)
}

// dies kills x, and returns when the others know that.
func (l *recordedLock) dies(t *testing.T, x *agent) {
	t.Helper()
	x.kill(t)
	eventually(t, "the others know that it has died", l.arena, func() (known bool) {
		asPeer(t, l.arena, l.off, func(a *arena.Arena, _ arenakernel.Object) {
			known = true
			for p := range a.Participants() {
				known = known && (p.Label != x.label || p.State != "live")
			}
		})
		return known
	})
}

func newRecordedLock(t *testing.T, kind string) *recordedLock {
	l := &recordedLock{kind: kind, arena: newArena(t), place: recordedLocks[kind]}
	var err error
	l.memory, err = os.OpenFile(filepath.Join("/dev/shm", l.arena), os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { l.memory.Close() })
	return l
}

func eachRecordedLock(t *testing.T, langs []string, f func(t *testing.T, lang string, l *recordedLock)) {
	for kind := range recordedLocks {
		for _, lang := range langs {
			t.Run(kind+"/"+lang, func(t *testing.T) { f(t, lang, newRecordedLock(t, kind)) })
		}
	}
}

// A peer has overwritten a link in the queue of a lock. The lock still becomes free when its holder unlocks. The lock
// also becomes free when its holder dies, if the policy is to release the lock, or if the holder has not accepted the
// lock. The first wait may belong to a dead process.
func TestTornQueueKeepsNoLock(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name                         string
		policy                       int
		firstDies, unlocks, accepted bool
	}{
		{"unlock beside a dead wait", 0, true, true, true},
		{"death", release, false, false, true},
		{"death beside a dead wait", release, true, false, true},
		{"death before the grant is accepted", 0, false, false, false},
	} {
		t.Run(how.name, func(t *testing.T) {
			eachRecordedLock(t, []string{"go", "c"}, func(t *testing.T, lang string, l *recordedLock) {
				b, env := newAgent(t, lang, l.arena, "stays"), []string{}
				if !how.accepted {
					env = append(env, "SHMSYNC_CRASHPOINT_STOP=record.await.resolved")
				}
				l.open(t, b, how.policy)
				holder := b
				if !how.unlocks {
					holder = newAgent(t, "c", l.arena, "holder", env...)
					holder.mortal = true
				}
				queued := uint64(0)
				if how.accepted {
					l.do(t, holder, "lock")
				} else {
					l.do(t, b, "lock")
					l.blocked(t, holder, 1)
					queued = 1
				}
				first := newAgent(t, "c", l.arena, "first")
				first.mortal = true
				l.blocked(t, first, queued+1)
				second := newAgent(t, lang, l.arena, "second")
				second.mortal = true
				l.blocked(t, second, queued+2)
				if !how.accepted {
					l.do(t, b, "unlock")
					holder.awaitStop(t)
				}
				l.tear(t)
				if how.firstDies {
					l.dies(t, first)
				}
				if how.unlocks {
					l.do(t, b, "unlock")
				} else {
					holder.kill(t) // this process does not attach, so it does not reap
				}
				eventually(t, "the lock is free", l.arena, func() bool {
					_, named := l.holder(t)
					return named == 0
				})
				l.start(t, b, "lock").fails(t, syscall.EPROTO)
			})
		})
	}
}

// A process that has not opened a lock reaps the dead holder of the lock. Before the compare-and-swap of the reaper,
// the open owner word is closed, or is closed and opened again. The reaper still takes the lock back.
func TestReaperFindsAnotherOwnerWord(t *testing.T) { reaperFindsAnotherWord(t, "c") }

func reaperFindsAnotherWord(t *testing.T, lang string) {
	for _, policy := range []int{0, release} {
		t.Run(fmt.Sprintf("policy %d", policy), func(t *testing.T) {
			t.Run("closed", func(t *testing.T) {
				eachRecordedLock(t, []string{lang}, func(t *testing.T, lang string, l *recordedLock) {
					reaperFinds(t, lang, l, policy, func(v uint64) uint64 { return v &^ (fairOpenKind << 61) })
				})
			})
			// There is no such test for a MultiLock: the owner word of a key does not open again for the same holder.
			t.Run("opened again/fair", func(t *testing.T) {
				reaperFinds(t, lang, newRecordedLock(t, "fair"), policy, func(v uint64) uint64 { return v + 2 })
			})
		})
	}
}

// reaperFinds kills the holder of a lock. Before the compare-and-swap of the reaper, it replaces the value v of the
// owner word by another(v).
func reaperFinds(t *testing.T, lang string, l *recordedLock, policy int, another func(v uint64) uint64) {
	t.Helper()
	holder := newAgent(t, "c", l.arena, "holder")
	holder.mortal = true
	l.open(t, holder, policy)
	l.do(t, holder, "lock")
	x := newAgent(t, lang, l.arena, "stranger", "SHMSYNC_CRASHPOINT_STOP=arena.act.verified")
	holder.kill(t)
	x.awaitStop(t)
	v := l.word(t, l.place)
	require.EqualValues(t, fairOpenKind, v>>61)
	l.overwrite(t, l.place, another(v))
	require.NoError(t, x.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, "the lock is taken back", l.arena, func() bool {
		kind, named := l.holder(t)
		return named == 0 || kind == fairDeadKind
	})
	if policy == 0 {
		l.start(t, x, "lock").fails(t, syscall.EOWNERDEAD)
		l.do(t, x, "recover")
	}
	l.do(t, x, "lock")
	l.do(t, x, "unlock")
	sound(t, l.arena)
}

// A process is stopped while it carries a record out. Meanwhile other processes complete the record, and change one of
// its words so often that the word has its old tag again. When the process resumes, it does not change this word,
// because the commit word has changed. The test stores the old word instead of making 2^32 changes.
func TestRecordIsCarriedOutWhileItIsTheLast(t *testing.T) { carriesOutLate(t, "c") }

func carriesOutLate(t *testing.T, lang string) {
	const last = 32 // offset of the word that names the last wait of a FairMutex
	for _, author := range []bool{true, false} {
		t.Run(fmt.Sprintf("author %v", author), func(t *testing.T) {
			l := newRecordedLock(t, "fair")
			b := newAgent(t, "c", l.arena, "holder")
			l.open(t, b, 0)
			l.do(t, b, "lock")
			was := l.word(t, last)
			point := "record.complete.begun"
			if !author {
				point = "record.commit.named"
			}
			x := newAgent(t, lang, l.arena, "waits", "SHMSYNC_CRASHPOINT_STOP="+point)
			wait := l.start(t, x, "lock")
			x.awaitStop(t)
			late, tries := x, pending{}
			if !author {
				late = newAgent(t, lang, l.arena, "late", "SHMSYNC_CRASHPOINT_STOP=record.complete.begun")
				tries = l.start(t, late, "try")
				late.awaitStop(t)
			}
			l.do(t, b, "unlock") // completes the record of x, and grants the lock to x
			require.Equal(t, was+2, l.word(t, last))
			l.overwrite(t, last, was)
			require.NoError(t, late.cmd.Process.Signal(syscall.SIGCONT))
			if !author {
				tries.fails(t, syscall.EBUSY)
				require.Equal(t, was, l.word(t, last))
				require.NoError(t, x.cmd.Process.Signal(syscall.SIGCONT))
			}
			wait.must(t)
			require.Equal(t, was, l.word(t, last))
			l.do(t, x, "unlock")
			l.do(t, b, "lock")
			l.do(t, b, "unlock")
			sound(t, l.arena)
		})
	}
}
