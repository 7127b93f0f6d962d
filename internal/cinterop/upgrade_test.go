//go:build linux

package cinterop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

type (
	hitsV1 struct{ Hits uint64 }
	hitsV2 struct{ Hits, Misses uint64 }
)

func upgradeHits(a *arena.Arena) error {
	return arena.Upgrade(a, "hits", func(old arena.Stored, v *hitsV2) error {
		v1, err := arena.As[hitsV1](old)
		if err == nil {
			v.Hits = v1.Hits
		}
		return err
	})
}

// beginsEpoch runs f in OnFirst.
func beginsEpoch(t *testing.T, name string, f func(a *arena.Arena)) {
	t.Helper()
	ran := false
	a, err := arena.Open(name, &arena.Options{OnFirst: func(a *arena.Arena, _ arena.Epoch) error { ran = true; f(a); return nil }})
	require.NoError(t, err)
	require.True(t, ran)
	require.NoError(t, a.Check())
	require.NoError(t, a.Close())
}

// interruptedUpgrade makes an arena in which a Go program died during an upgrade of a Value. The parameter state names
// the moment of the death: see docs/design/0044-upgrades.md.
func interruptedUpgrade(t *testing.T, state string) (name string) {
	name = newArena(t)
	beginsEpoch(t, name, func(a *arena.Arena) {
		k := (*arenakernel.Arena)(a)
		var from, created uint64
		if state == "undecided" || state == "both" {
			v, err := arena.Value[hitsV1](a, "hits")
			require.NoError(t, err)
			v.Hits = 8
		}
		if state == "undecided" {
			for o := range a.Objects() {
				at, err := arenakernel.TryAt[[64]byte](k, o.Offset)
				require.NoError(t, err)
				from, created = uint64(o.Offset), binary.LittleEndian.Uint64(at[32:])
			}
		}
		if state == "done" {
			v, err := arena.Value[hitsV2](a, "hits")
			require.NoError(t, err)
			v.Hits = 7
		}
		if state == "empty" {
			_, err := arena.Value[hitsV2](a, "hits")
			require.NoError(t, err)
		}
		layout, err := arena.LayoutOf[hitsV2]()
		require.NoError(t, err)
		_, made, err := k.OpenObject(arenakernel.ObjectSpec{
			Kind: arenakernel.KindBlock, Version: 1, Name: "hits (upgrade)", Size: 16 + 24, Layout: layout,
			Init: func(b []byte) {
				binary.LittleEndian.PutUint64(b, 7)
				binary.LittleEndian.PutUint64(b[16:], from)
				binary.LittleEndian.PutUint64(b[24:], created)
				binary.LittleEndian.PutUint32(b[32:], uint32(arenakernel.KindValue))
				binary.LittleEndian.PutUint32(b[36:], 1)
			},
		})
		require.NoError(t, err)
		require.True(t, made)
	})
	return name
}

// deletesInC deletes the object in a C program, and returns the errno value of the deletion, or -1 if the program
// was killed.
func deletesInC(t *testing.T, name, object string, env ...string) int {
	t.Helper()
	cmd := exec.Command(program(t, "deletes.c"), name, object)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err == nil {
		return 0
	}
	require.True(t, errors.As(err, &exit), "%v", err)
	if exit.Sys().(syscall.WaitStatus).Signaled() {
		require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "%s", out)
		return -1
	}
	return exit.ExitCode()
}

// A C program deletes an object, and with it everything that an interrupted upgrade in Go has left of it. So the next
// upgrade does not bring the object back.
func TestDeleteInCAfterAnInterruptedUpgrade(t *testing.T) {
	for _, state := range []string{"undecided", "decided", "both", "empty", "done"} {
		t.Run(state, func(t *testing.T) {
			name := interruptedUpgrade(t, state)
			require.Zero(t, deletesInC(t, name, "hits"))
			require.Equal(t, int(syscall.ENOENT), deletesInC(t, name, "hits"))
			beginsEpoch(t, name, func(a *arena.Arena) {
				require.NoError(t, upgradeHits(a))
				require.Zero(t, a.Stats().Objects)
			})
		})
	}
}

// A C program cannot delete an object that another process has open. The call that fails also keeps what an upgrade has
// left of another object with the same name.
func TestRefusedDeleteInCKeepsASuccessorWithData(t *testing.T) {
	for state, open := range map[string]func(a *arena.Arena) error{
		"both":  func(a *arena.Arena) error { _, err := arena.Value[hitsV1](a, "hits"); return err },
		"empty": func(a *arena.Arena) error { _, err := arena.Value[hitsV2](a, "hits"); return err },
	} {
		t.Run(state, func(t *testing.T) {
			name := interruptedUpgrade(t, state)
			a, err := arena.Attach(name, nil)
			require.NoError(t, err)
			require.NoError(t, open(a))
			require.Equal(t, int(syscall.EBUSY), deletesInC(t, name, "hits"))
			require.EqualValues(t, 2, a.Stats().Objects)
			require.NoError(t, a.Close())
			require.Zero(t, deletesInC(t, name, "hits"))
		})
	}
}

// A C program deletes an object. It keeps a block whose name only looks like the name of a successor of this object.
func TestDeleteInCKeepsABlockThatIsNoSuccessor(t *testing.T) {
	name := newArena(t)
	beginsEpoch(t, name, func(a *arena.Arena) {
		_, err := arena.Value[hitsV1](a, "hits")
		require.NoError(t, err)
		_, err = a.Block("hits (upgrade)", 64)
		require.NoError(t, err)
	})
	require.Zero(t, deletesInC(t, name, "hits"))
	require.Equal(t, int(syscall.ENOENT), deletesInC(t, name, "hits"))
	beginsEpoch(t, name, func(a *arena.Arena) { require.EqualValues(t, 1, a.Stats().Objects) })
}

// A C program dies at each crash point of the deletion of an object after an interrupted upgrade. If the object is
// gone, the next upgrade does not bring it back.
func TestDeathOfADeleterInCAfterAnUpgrade(t *testing.T) {
	for _, state := range []string{"undecided", "decided", "both", "done"} {
		for _, point := range []string{
			"arena.object.bit_set", "arena.delete.before_mark", "arena.delete.marked", "arena.delete.before_decide",
			"arena.delete.decided", "arena.delete.freeing", "arena.delete.unlisted", "arena.delete.nodes_freed",
		} {
			t.Run(state+"/"+point, func(t *testing.T) {
				n := 1
				for ; cDeleterDies(t, state, point, n); n++ {
				}
				require.Greater(t, n, 1, "the point was not passed")
			})
		}
	}
}

func cDeleterDies(t *testing.T, state, point string, n int) (died bool) {
	name := interruptedUpgrade(t, state)
	end := deletesInC(t, name, "hits", fmt.Sprintf("SHMSYNC_CRASHPOINT=%s:%d", point, n))
	require.LessOrEqual(t, end, 0)
	beginsEpoch(t, name, func(a *arena.Arena) {
		object, successor := false, false
		for o := range a.Objects() {
			object = object || o.Name == "hits"
			successor = successor || o.Name == "hits (upgrade)"
		}
		require.False(t, end == 0 && (object || successor))
		err := upgradeHits(a)
		if state == "both" && object && successor {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		v, err := arena.AttachValue[hitsV2](a, "hits")
		if !object && !(state == "decided" && successor) {
			require.ErrorIs(t, err, fs.ErrNotExist)
			return
		}
		require.NoError(t, err)
		require.Equal(t, state == "undecided" || state == "both", v.Hits == 8)
	})
	return end != 0
}
