//go:build linux

package stopstorm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// TestMain lets the test binary run as a worker of a storm.
func TestMain(m *testing.M) {
	if os.Getenv("SHMBENCH_WORKER") == "" {
		os.Exit(m.Run())
	}
	number, err := strconv.Atoi(os.Args[len(os.Args)-1])
	if err == nil {
		err = RunWorker(number)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options returns the options of a quick storm. Its bound is so long that only a freeze exceeds it, even on a busy
// machine. A freeze lasts until the victim is continued, so a storm with a long bound still finds each freeze.
func options(stops int, prims ...string) *Options {
	return &Options{
		Prims: prims, Stops: stops, Procs: 3, Watch: 5 * time.Millisecond, Bound: proctest.Scale(10 * time.Second),
		Trouble: proctest.Scale(2 * time.Minute), Format: "json",
	}
}

// measure runs a storm, and logs its results.
func measure(t *testing.T, o *Options) *Document {
	t.Helper()
	d, err := Measure(context.Background(), o)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, d.table(&b))
	t.Log("\n" + b.String())
	return d
}

func TestStopFreezesNobody(t *testing.T) {
	for _, p := range workloads[:sound] {
		t.Run(p.name, func(t *testing.T) {
			d := measure(t, options(proctest.Rounds(2, 30), p.name))
			require.Empty(t, d.Results[0].Texts, "a stopped process froze others")
			require.Zero(t, d.Results[0].Freezes)
			require.Equal(t, proctest.Rounds(2, 30), d.Results[0].Stops)
		})
	}
}

func TestFreezeIsFound(t *testing.T) {
	// Only a stop of a worker that holds the lock freezes others. Several storms make such a stop likely.
	var d *Document
	for storms := 0; d == nil || d.Results[0].Freezes == 0; storms++ {
		require.Less(t, storms, 20, "no stop has frozen a workload whose lock nobody can see")
		o := options(40, "test:frozen")
		o.Bound = 100 * time.Millisecond
		d = measure(t, o)
	}
	require.ErrorIs(t, d.Err(), ErrFreeze)
	require.Contains(t, d.Results[0].Texts[0], "does not go on: secret")
}

// TestFaultIsReadWhenItsTextIsWhole checks that the parent omits a fault whose text is not written yet. A worker counts
// the fault before it writes the text, and the parent may read the faults at any moment.
func TestFaultIsReadWhenItsTextIsWhole(t *testing.T) {
	p := new(page)
	p.fault("a worker has a fault")
	p.faults.Add(1)
	require.Equal(t, []string{"a worker has a fault"}, p.failures())
	p.text[1].n.Store(uint32(copy(p.text[1].bytes[:], "so has another")))
	require.Equal(t, []string{"a worker has a fault", "so has another"}, p.failures())
}

// TestWorkerThatCannotOpenItsObjects checks that a storm ends with the error of the worker if a worker cannot open its
// objects.
func TestWorkerThatCannotOpenItsObjects(t *testing.T) {
	for _, every := range []int{0, 1} {
		o := options(1, "test:refused")
		o.Every = every
		_, err := Measure(context.Background(), o)
		require.ErrorContains(t, err, "cannot be opened")
	}
}

func TestVisibleHoldExcuses(t *testing.T) {
	// A stop is excused only if the victim is the worker that holds the lock. Several storms make such a stop likely.
	for storms, excused := 0, 0; excused == 0; storms++ {
		require.Less(t, storms, 10)
		d := measure(t, options(20, "test:held"))
		excused = d.Results[0].Excused + d.Results[0].Granted
		require.Zero(t, d.Results[0].Freezes, d.Results[0].Texts)
		require.NoError(t, d.Err())
	}
}

func TestQuotaIsEmulated(t *testing.T) {
	o := options(5, "sequencer")
	o.Quota = 10
	d := measure(t, o)
	require.Equal(t, 5, d.Results[0].Stops)
	require.Contains(t, d.Quota, "emulated")
}

func TestStepStopsFreezeNobody(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("needs amd64: the tracer knows no other registers")
	}
	for _, name := range steppedFree() {
		t.Run(name, func(t *testing.T) {
			o := options(proctest.Rounds(10, 100), name)
			o.Every = 1
			for _, r := range measure(t, o).Results {
				require.Zero(t, r.Freezes, "%s: %v", r.Lane, r.Texts)
				require.NotZero(t, r.Stops, r.Lane)
			}
		})
	}
}

func TestStepStopFindsTheFreeze(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("needs amd64: the tracer knows no other registers")
	}
	// Only a stop of a worker that holds the lock freezes others. Several tries make such a stop likely.
	for range 20 {
		o := options(100, "test:frozen")
		o.Every, o.Bound = 1, 100*time.Millisecond
		if measure(t, o).Results[0].Freezes != 0 {
			return
		}
	}
	t.Fatal("no step stop has frozen a workload whose lock nobody can see")
}

func TestOptions(t *testing.T) {
	for _, change := range []func(o *Options){
		func(o *Options) { o.Prims = []string{"nothing"} },
		func(o *Options) { o.Procs = 2 },
		func(o *Options) { o.Stops = 0 },
		func(o *Options) { o.Watch = 0 },
		func(o *Options) { o.Quota = 100 },
		func(o *Options) { o.Quota, o.Every = 10, 1 },
		func(o *Options) { o.In = []string{"fortran"} },
		func(o *Options) { o.Prims, o.In = []string{"cohortmutex"}, []string{"c"} },
		func(o *Options) { o.In, o.CC = []string{"mixed"}, "none" },
	} {
		o := options(1, "mutex")
		change(o)
		d, err := Measure(context.Background(), o)
		require.Error(t, err)
		require.Nil(t, d)
	}
}

func TestResultAsJSON(t *testing.T) {
	var out bytes.Buffer
	o := options(1, "sequencer")
	o.Out = &out
	require.NoError(t, Run(context.Background(), o))
	var d Document
	require.NoError(t, json.Unmarshal(out.Bytes(), &d))
	require.Equal(t, Schema, d.Schema)
	require.Equal(t, "random stops", d.Mode)
}

// steppedFree returns the primitives for which step stops are tested. Locks are omitted: most of their step stops are
// excused, and each excused stop takes a thirtieth of the bound.
func steppedFree() []string {
	if proctest.Long() {
		return []string{"futex", "signal"}
	}
	return []string{"futex"}
}
