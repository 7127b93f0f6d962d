//go:build linux

package cinterop

import (
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestUncontendedInC checks how long an uncontended pair of lock and unlock takes in C. The limit is a multiple of the
// time of the same pair with pthread, in the same program. The test measures three forms of the library: compiled into
// the program, linked statically, and linked as a shared library. The limits leave room for other processors and
// compilers. docs/performance.md has figures.
func TestUncontendedInC(t *testing.T) {
	t.Parallel()
	if !proctest.Long() {
		t.Skip("needs SHMSYNC_TEST_LONG=1: it measures for seconds")
	}
	cc := compiler(t)
	root := t.TempDir()
	makeLibrary(t, cc, "CFLAGS=-O2", "O="+filepath.Join(root, "build"), "DESTDIR="+root, "prefix=/usr", "install")
	lib := filepath.Join(root, "usr", "lib")
	linked := func(name string, with ...string) string {
		bin := filepath.Join(root, name)
		args := append([]string{"-O2", "-I" + filepath.Join(root, "usr", "include"), filepath.Join("testdata", "bench.c"), "-o", bin}, with...)
		out, err := exec.Command(cc, append(args, "-pthread")...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return bin
	}
	pairs := []string{"Mutex", "checked Mutex", "write of RWMutex", "read of RWMutex"}
	for _, form := range []struct {
		name, path string
		most       [4]float64 // of pairs
	}{
		{"one file", program(t, "bench.c", "-O2", "-USHMSYNC_CRASHPOINTS", "-DSHMSYNC_IMPLEMENTATION"), [...]float64{0.9, 1.6, 2.4, 1.3}},
		{"static", linked("static", filepath.Join(lib, "libshmsync.a")), [...]float64{0.9, 1.6, 2.4, 1.3}},
		{"shared", linked("shared", "-L"+lib, "-lshmsync", "-Wl,-rpath,"+lib), [...]float64{0.9, 1.8, 2.4, 1.6}},
	} {
		t.Run(form.name, func(t *testing.T) {
			tooMuch := []string{"no round"}
			for range 5 { // the machine may be busy
				out, err := exec.Command(form.path, unusedName(t), "15").Output()
				require.NoError(t, err)
				tooMuch = nil
				for i, r := range pairRatios(t, string(out)) {
					said := fmt.Sprintf("%s: %.2f (%.2f to %.2f), at most %.2f", pairs[i], r[0], r[1], r[2], form.most[i])
					t.Log(said)
					if r[0] > form.most[i] {
						tooMuch = append(tooMuch, said)
					}
				}
				if tooMuch == nil {
					return
				}
			}
			t.Error(tooMuch)
		})
	}
}

// pairRatios parses the output of bench.c. For each kind of lock, it returns the median of the ratio of its time to the
// time with pthread. It also returns an interval that contains the true median with a probability of 95 %.
func pairRatios(t *testing.T, lines string) (all [4][3]float64) {
	t.Helper()
	var ratios [4][]float64
	for line := range strings.Lines(lines) {
		var mutex, checked, robust, write, pthreadWrite, read, pthreadRead float64
		_, err := fmt.Sscan(line, &mutex, &checked, &robust, &write, &pthreadWrite, &read, &pthreadRead)
		require.NoError(t, err)
		for i, r := range []float64{mutex / robust, checked / robust, write / pthreadWrite, read / pthreadRead} {
			ratios[i] = append(ratios[i], r)
		}
	}
	for i, r := range ratios {
		slices.Sort(r)
		n := len(r)
		low := max(0, int((float64(n)-1.96*math.Sqrt(float64(n)))/2))
		all[i] = [...]float64{r[n/2], r[low], r[n-1-low]}
	}
	return all
}

// BenchmarkDataCostsInC measures in C how much it costs to protect data against deaths, as BenchmarkDataCosts of
// package prims does in Go.
func BenchmarkDataCostsInC(b *testing.B) {
	path := program(b, "costs.c", "-O2", "-USHMSYNC_CRASHPOINTS")
	for range b.N {
		out, err := exec.Command(path, unusedName(b)).CombinedOutput()
		require.NoError(b, err, "%s", out)
		fmt.Printf("\n%s", out)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRoundTrip measures a post to another process and the answer to it.
func BenchmarkRoundTrip(b *testing.B) {
	for _, lang := range []string{"go", "c"} {
		b.Run("go-"+lang, func(b *testing.B) {
			name := newArena(b)
			a, err := arena.Attach(name, nil)
			require.NoError(b, err)
			defer a.Close()
			f, err := prims.OpenFutex(a, "f", nil)
			require.NoError(b, err)
			back, err := prims.OpenFutex(a, "f-back", nil)
			require.NoError(b, err)
			x := newAgent(b, lang, name, "answers")
			pong := x.start(b, "futex.pong", "f", b.N)
			b.ResetTimer()
			for i := range b.N {
				f.Post()
				back.Wait(uint64(i + 1))
			}
			b.StopTimer()
			pong.must(b)
		})
	}
}
