//go:build linux

package subjects

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// wantPeers are the primitives of the host that a report must have beside those of the library.
var wantPeers = map[string][]string{
	"c:pthread": {"uncontended", "lock"}, "c:robust": {"uncontended", "lock", "crash"}, "c:pi": {"uncontended", "lock"},
	"c:adaptive": {"uncontended", "lock"}, "c:rwlock-writers": {"rw"},
	"c:robust-pi": {"crash"}, "c:rwlock": {"readers", "rw"}, "c:pthread-spin": {"uncontended", "lock"}, "c:spin": {"lock", "handoff"},
	"c:cond": {"handoff", "wake", "cond"}, "c:barrier": {"barrier"}, "c:sem": {"uncontended", "handoff", "sem"},
	"c:sysv": {"uncontended", "handoff", "sem", "crash"}, "c:mq": {"handoff", "wake", "lock"}, "c:futex": {"handoff", "wake", "lock", "herd"},
	"go:eventfd": {"handoff", "sem"}, "go:pipe": {"handoff", "queue"}, "go:unix": {"handoff", "queue"}, "go:flock": {"lock", "crash"},
	"go:ofd": {"lock", "crash", "multi"}, "go:futex": {"wake", "waiters", "herd"}, "go:futex-requeue": {"herd"},
	"go:futex2": {"wake", "herd"}, "go:futex2-numa": {"wake", "herd"}, "in-process:sync.Mutex": {"uncontended", "lock"},
	"in-process:sync.RWMutex": {"readers", "rw"}, "in-process:chan": {"handoff", "lock", "queue", "sem"}, "in-process:sync.Cond": {"cond"},
}

func TestPeersAreThere(t *testing.T) {
	for name, in := range wantPeers {
		s, err := Find(name)
		require.NoError(t, err)
		require.Subset(t, s.Scenarios, in, name)
	}
	names := map[string]bool{}
	for _, s := range All {
		require.False(t, names[s.Name()], "%s is there twice", s.Name())
		names[s.Name()] = true
	}
}

func TestNoFenceIsOff(t *testing.T) {
	for _, s := range libSubjects {
		require.Equal(t, strings.Contains(s.Prim, "-no") || s.Prim == "mutex-bare", len(s.Env) > 0, s.Name())
	}
	name, value, _ := strings.Cut(noFence[0], "=")
	require.Equal(t, "SHMSYNC_DISABLE", name)
	require.Equal(t, shmsync.FeatureMembarrier.Name(), value)
	for _, s := range libSubjects {
		for _, env := range s.Env { // the library would ignore an unknown name
			_, names, _ := strings.Cut(env, "=")
			for name := range strings.SplitSeq(names, ",") {
				require.True(t, slices.ContainsFunc(shmsync.Features(), func(f *shmsync.Feature) bool { return f.Name() == name }), name)
			}
		}
	}
}
