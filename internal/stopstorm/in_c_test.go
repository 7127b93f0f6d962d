//go:build linux

package stopstorm

import (
	"context"
	"debug/elf"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/include"
	"github.com/shmsync/shmsync/internal/proctest"
)

// needCompiler returns the C compiler. It skips the test if there is none.
func needCompiler(t *testing.T) string {
	t.Helper()
	if os.Getenv("SHMSYNC_EXEC_WRAP") != "" {
		t.Skip("needs programs in C of the architecture of the Go programs, which SHMSYNC_EXEC_WRAP may run in an emulator")
	}
	return proctest.CCompiler(t)
}

// optionsInC returns the options of a quick storm with workers in C.
func optionsInC(in string, stops int, prims ...string) *Options {
	o := options(stops, prims...)
	o.In = []string{in}
	return o
}

func TestStopFreezesNobodyInC(t *testing.T) {
	needCompiler(t)
	for _, p := range proctest.Sample(workloads[:sound], 8) {
		for _, in := range []string{inC, inMixed} {
			name := p.name
			if onlyGo[name] != "" {
				continue
			}
			t.Run(name+"/"+in, func(t *testing.T) {
				d := measure(t, optionsInC(in, proctest.Rounds(2, 30), name))
				require.Empty(t, d.Results[0].Texts, "a stopped process froze others")
				require.Zero(t, d.Results[0].Freezes)
				require.Equal(t, proctest.Rounds(2, 30), d.Results[0].Stops)
			})
		}
	}
}

// TestFreezeInCIsFound checks that a storm finds a freeze if the workers use a lock that the arena does not show. All
// workers are in C, or some are in C and some in Go.
func TestFreezeInCIsFound(t *testing.T) {
	needCompiler(t)
	for _, in := range []string{inC, inMixed} {
		// Only a stop of a worker that holds the lock freezes others. Several storms make such a stop likely.
		var d *Document
		for storms := 0; d == nil || d.Results[0].Freezes == 0; storms++ {
			require.Less(t, storms, 20, "no stop has frozen a workload whose lock nobody can see")
			o := optionsInC(in, 40, "test:frozen")
			o.Bound = 100 * time.Millisecond
			d = measure(t, o)
		}
		require.ErrorIs(t, d.Err(), ErrFreeze)
		require.Contains(t, d.Results[0].Texts[0], "does not go on: secret")
		require.Equal(t, in, d.Results[0].Lang)
	}
}

func TestStepStopsInCFreezeNobody(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("needs amd64: the tracer knows no other registers")
	}
	needCompiler(t)
	o := optionsInC(inC, proctest.Rounds(10, 100), "futex")
	o.Every = 1
	for _, r := range measure(t, o).Results {
		require.Zero(t, r.Freezes, "%s: %v", r.Lane, r.Texts)
		require.NotZero(t, r.Stops, r.Lane)
	}
}

// TestPlaceOfAStoppedProgramInC checks that the report for a stopped program in C names a function of the library, with
// a line of the header.
func TestPlaceOfAStoppedProgramInC(t *testing.T) {
	cc := needCompiler(t)
	c, err := buildInC(cc)
	require.NoError(t, err)
	defer c.close()
	i := slices.IndexFunc(c.functions, func(f elf.Symbol) bool { return f.Name == "shmsync_futex_post" })
	require.GreaterOrEqual(t, i, 0)
	require.Regexp(t, `^shmsync_futex_post shmsync\.h:\d+$`, strings.Join(c.frames(uintptr(c.functions[i].Value)), " "))
	require.Empty(t, c.frames(1))
	require.Empty(t, c.frames(math.MaxInt32))
}

// TestWorkerInCWithoutTheOperation checks that a storm ends with an error that names the operation, if worker.c does
// not have an operation.
func TestWorkerInCWithoutTheOperation(t *testing.T) {
	needCompiler(t)
	_, err := Measure(context.Background(), optionsInC(inC, 1, "test:held"))
	require.ErrorContains(t, err, "C has no operation")
}

func TestSourceInC(t *testing.T) {
	proctest.CheckSourceInC(t, workerSource, include.Header, pageFlags())
}
