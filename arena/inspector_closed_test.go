//go:build linux

package arena_test

import (
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/shm"
)

// TestClosedInspector: after Close, each method of an Inspector panics with a message that names the arena, and
// another Close returns ErrClosed. So no method reads the memory of the copy, which is unmapped.
func TestClosedInspector(t *testing.T) {
	name := fmt.Sprintf("shmsync-closed-inspector-%d", os.Getpid())
	a, err := arena.Create(name, nil)
	require.NoError(t, err)
	defer a.Close()
	defer shm.Remove(name)
	i, err := arena.Inspect(name)
	require.NoError(t, err)
	require.NoError(t, i.Check())
	require.NoError(t, i.Close())
	require.ErrorIs(t, i.Close(), shmsync.ErrClosed)
	for k := range reflect.TypeOf(i).NumMethod() {
		m := reflect.TypeOf(i).Method(k)
		if m.Name == "Close" {
			continue
		}
		in := []reflect.Value{reflect.ValueOf(i)}
		for p := 1; p < m.Type.NumIn(); p++ {
			in = append(in, reflect.Zero(m.Type.In(p)))
		}
		require.PanicsWithValue(t, "shmsync: use of the closed Inspector of /dev/shm/"+name, func() { m.Func.Call(in) }, m.Name)
	}
}
