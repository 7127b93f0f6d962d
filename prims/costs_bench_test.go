//go:build linux

package prims_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/bench/stats"
	"github.com/shmsync/shmsync/internal/ccache"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// BenchmarkDataCosts measures what data that survives a death costs, in Go and in C: Updates, Loads, a rollback, the
// time until the next owner has the lock of a dead owner, and a join of an arena. It measures all rows in each of many
// rounds, so that other programs of the host disturb all rows alike. A round measures each row several times, and only
// the fastest measurement counts. The unit is the cost of Lock, two stores and Unlock of a Mutex. For each row the
// benchmark prints the ratio to that unit with a confidence interval, the ratio that a prototype had, and the target.
func BenchmarkDataCosts(b *testing.B) {
	c := newCosts(b)
	defer c.end()
	for range max(21, b.N) {
		c.round()
	}
	fmt.Print("\n" + c.table(b))
	b.ReportMetric(0, "ns/op")
}

// costRow is a row of the results, for one operation. A slice is one measurement of the operation.
type costRow struct {
	name   string
	turns  int // how many times a slice repeats the operation
	run    func(n int)
	slice  func() float64 // if not nil: measures the nanoseconds of one operation; turns and run then have no effect
	slices int            // how many slices a round has, of which the fastest counts; 0: costSlices

	level  float64 // ratio of the prototype; 0: there is none
	target func(ns func(row string) float64) float64
	says   string // the target in words
}

// costSlices is the number of slices of a row in a round.
const costSlices = 8

// costs has the rows, and the results of the rounds.
type costs struct {
	rows []costRow
	ns   map[string][]float64 // the nanoseconds of each round
	end  func()               // ends the other processes
}

const costReference = "Lock, two stores, Unlock"

// The names of rows to which the targets of other rows refer.
const (
	costNothing = "Mutex.Update, nothing"
	costTwo     = "Mutex.Update, two words"
	cost256     = "Mutex.Update, 256 B"
)

func memcpyOf(size string) string { return "memcpy of " + size }

func newCosts(b testing.TB) *costs {
	a := newArena(b, &arena.Options{Size: 8 << 20})
	for !a.Fenced() { // handles that are opened after this loop unlock by a plain store
		<-after(time.Millisecond)
	}
	m, err := prims.OpenMutex(a, "reference", nil)
	require.NoError(b, err)
	words, err := arena.Value[[1024]uint64](a, "words")
	require.NoError(b, err)
	c := &costs{ns: map[string][]float64{}}
	c.rows = append(c.rows, costRow{name: costReference, run: func(n int) {
		for range n {
			m.Lock()
			words[0]++
			words[100]++
			m.Unlock()
		}
	}}, costMemcpy[[32]uint64]("256 B"))
	for _, rw := range []bool{false, true} {
		c.rows = append(c.rows, costUpdates(b, a, rw, words)...)
	}
	c.rows = append(c.rows, costSynchronized[[2]uint64](b, a, "16 B", 3.82, 1.47)...)
	c.rows = append(c.rows, costSynchronized[[128]uint64](b, a, "1 KiB", 8.53, 5)...)
	c.rows = append(c.rows, costSynchronized[[512]uint64](b, a, "4 KiB", 24.4, 14.7)...)
	c.rows = append(c.rows, costSynchronized[[8192]uint64](b, a, "64 KiB", 558.8, 0)...)
	for i := range c.rows {
		if r := &c.rows[i]; r.turns == 0 {
			r.turns = 1000
		}
	}
	inC, endC := costInC(b)
	join, endJoin := costJoin(b)
	c.rows = slices.Concat(c.rows, inC, costNextOwner(b), join)
	c.end = func() { endC(); endJoin() }
	return c
}

// costUpdates returns rows for the Updates of a lock. The rows of a Mutex have targets.
func costUpdates(b testing.TB, a *arena.Arena, rw bool, words *[1024]uint64) (rows []costRow) {
	l, err := openTxLock(a, rw, 0)
	require.NoError(b, err)
	what := map[bool]string{false: "Mutex", true: "RWMutex"}[rw]
	row := func(name string, f func(tx *prims.Tx) error, level float64, says string, target func(ns func(string) float64) float64) {
		r := costRow{name: what + ".Update, " + name, run: func(n int) {
			for range n {
				l.Update(f)
			}
		}}
		if !rw {
			r.level, r.says, r.target = level, says, target
		}
		rows = append(rows, r)
	}
	above := func(more float64) func(ns func(string) float64) float64 {
		return func(ns func(string) float64) float64 { return ns(costReference) + more }
	}
	row("nothing", func(*prims.Tx) error { return nil }, 2.94, "reference + 7 ns", above(7))
	row("two words", func(tx *prims.Tx) error {
		prims.Save(tx, &words[0])
		prims.Save(tx, &words[100])
		words[0]++
		words[100]++
		return nil
	}, 5, "reference + 15 ns", above(15))
	for _, s := range []struct {
		n     int
		size  string
		level float64
	}{{256, "256 B", 5.59}, {1024, "1 KiB", 7.35}, {4096, "4 KiB", 24.4}} {
		row(s.size, func(tx *prims.Tx) error { prims.SaveSlice(tx, words[:s.n/8]); words[0]++; return nil }, s.level,
			"reference + 15 ns + 1.5 memcpy", func(ns func(string) float64) float64 { return ns(costReference) + 15 + 1.5*ns(memcpyOf(s.size)) })
	}
	row("ten Set", func(tx *prims.Tx) error {
		for i := range 10 {
			prims.Set(tx, &words[20*i], uint64(i))
		}
		return nil
	}, 15.3, "Update of nothing + 4 ns each", func(ns func(string) float64) float64 { return ns(costNothing) + 40 })
	rows = append(rows, costRow{name: what + ", rollback of 16 KiB", turns: 20, run: costRollback(b, a, rw),
		says: "20 µs", target: func(func(string) float64) float64 { return 20e3 }})
	return rows
}

func costMemcpy[T any](size string) costRow {
	x := new(struct {
		to   T
		_    [320]byte // without this gap, to and from may lie whole pages apart; then loads wait for stores
		from T
	})
	return costRow{name: memcpyOf(size), run: func(n int) {
		for range n {
			x.to = x.from
			sink(x)
		}
	}}
}

func costSynchronized[T any](b testing.TB, a *arena.Arena, size string, update, load float64) []costRow {
	s, dst := newSynchronized(b, a, size, *new(T)), new(T)
	rows := []costRow{
		costMemcpy[T](size),
		{name: "Synchronized.Update of " + size, level: update, run: func(n int) {
			for range n {
				s.Update(func(*T) error { return nil })
			}
		}, says: "reference + 10 ns + 2 memcpy", target: func(ns func(string) float64) float64 {
			return ns(costReference) + 10 + 2*ns(memcpyOf(size))
		}},
		{name: "Synchronized.Load of " + size, level: load, run: func(n int) {
			for range n {
				s.LoadInto(dst)
			}
		}, says: "1.5 reference + memcpy", target: func(ns func(string) float64) float64 {
			return 1.5*ns(costReference) + ns(memcpyOf(size))
		}},
	}
	if size == "64 KiB" {
		for i := range rows {
			rows[i].turns = 20
		}
		rows[2].target = nil // this row has no target
	}
	return rows
}

// costRollback returns a function that locks and unlocks a lock n times. Before each Lock, it makes the
// lock look as if a dead holder had left 16 KiB in its undo log. So each Lock rolls back 16 KiB.
func costRollback(b testing.TB, a *arena.Arena, rw bool) func(n int) {
	const saved, gone = 16 << 10, 1<<11 | 9
	off, err := a.Alloc(saved, 8)
	require.NoError(b, err)
	records := binary.LittleEndian.AppendUint64(make([]byte, saved), uint64(off))
	records = binary.LittleEndian.AppendUint64(records, saved)
	var l txLock
	if rw {
		l, err = prims.OpenRWMutex(a, "left rw", &prims.RWMutexOptions{Policy: prims.PolicyRollback, LogBytes: 2 * saved})
	} else {
		l, err = prims.OpenMutex(a, "left m", &prims.MutexOptions{Policy: prims.PolicyRollback, LogBytes: 2 * saved})
	}
	require.NoError(b, err)
	leave := func() { l.LeaveLog(1<<61|gone<<32|uint64(len(records)), records) }
	run := func(n int) {
		for range n {
			leave()
			l.Lock()
			l.Unlock()
		}
	}
	run(1)
	require.EqualValues(b, 1, l.Rollbacks())
	return run
}

// costInC returns the rows that a program in C measures. Without a C compiler there are none.
func costInC(b testing.TB) (rows []costRow, end func()) {
	cc, err := exec.LookPath("cc")
	if err != nil || os.Getenv("SHMSYNC_EXEC_WRAP") != "" {
		require.True(b, err == nil || os.Getenv("SHMSYNC_NEED_CC") == "", "there is no C compiler")
		return nil, func() {}
	}
	program := filepath.Join(b.TempDir(), "costs")
	include, source := filepath.Join("..", "include"), filepath.Join("..", "internal", "cinterop", "testdata", "costs.c")
	optimize := "-O0"
	if _, measures := b.(*testing.B); measures { // a test only needs some figure in each row, so it compiles faster
		optimize = "-O2"
	}
	require.NoError(b, ccache.Compile(cc, []string{"-std=gnu11", optimize, "-pthread", "-I" + include, source}, program))
	cmd := exec.Command(program, arenaName(b), "serve")
	cmd.Stderr = os.Stderr
	ask, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	answers := bufio.NewScanner(out)
	row := func(name, inC string, level float64, goes string) costRow {
		r := costRow{name: "C: " + name, level: level, slice: func() float64 {
			_, err := fmt.Fprintln(ask, inC)
			require.NoError(b, err)
			require.True(b, answers.Scan(), "%s: %v", inC, answers.Err())
			ns, err := strconv.ParseFloat(answers.Text(), 64)
			require.NoError(b, err)
			return ns
		}}
		if goes != "" {
			r.says, r.target = "not above Go", func(ns func(string) float64) float64 { return ns(goes) }
		}
		return r
	}
	return []costRow{
		row(costReference, "reference", 0, ""),
		row("Update, nothing", "mutex, nothing", 0, ""),
		row("Update, two words", "mutex, two words", 4.71, costTwo),
		row("Update, 256 B", "mutex, 256 B", 2.94, cost256),
	}, func() { io.WriteString(ask, "end\n"); ask.Close(); cmd.Wait() }
}

func init() {
	proctest.Register("costs/holder", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		m, err := openTxLock(a, false, 0)
		if err != nil {
			c.Fatal(err)
		}
		word, err := arena.Value[uint64](a, "word")
		if err != nil {
			c.Fatal(err)
		}
		c.Fatal(m.Update(func(tx *prims.Tx) error {
			prims.Set(tx, word, *word+1)
			c.Say(a.Self())
			c.Await()
			return nil
		}))
	})
	proctest.Register("costs/joiner", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		for {
			var again bool
			c.Recv(&again)
			l, err := liveShortly(name)
			if err != nil {
				c.Fatal(err)
			}
			c.Say(l.Join)
		}
	})
}

// costNextOwner kills a process in an Update while this process waits for the lock. The first row measures the time
// from the end of the killed process until this process has the lock and has undone the change. The second row measures
// the time from the kill to the end of the killed process. The end is the time of the last check that did not find the
// killed process gone.
func costNextOwner(b testing.TB) []costRow {
	a := newArena(b, nil)
	m := must(openTxLock(a, false, 0)).(*prims.Mutex)
	word, err := arena.Value[uint64](a, "word")
	require.NoError(b, err)
	var took float64
	gone := costRow{name: "gone after a kill", slices: 1, slice: func() float64 { return took }}
	return []costRow{{name: "next owner after gone", slices: 1, slice: func() float64 {
		holder := proctest.Start(b, "costs/holder", proctest.Params(nameOf(a)))
		var id arena.ParticipantID
		holder.Recv(b, &id)
		got := make(chan int64)
		go func() {
			runtime.LockOSThread()
			m.Lock()
			at := shmsync.Monotonic()
			if *word != 0 {
				at = 0
			}
			m.Unlock()
			got <- at
		}()
		for !m.State().Waiting {
			<-after(time.Millisecond)
		}
		require.NoError(b, syscall.Kill(holder.Pid(), syscall.SIGKILL))
		killed := shmsync.Monotonic()
		last := killed
		for {
			at := shmsync.Monotonic()
			if (*arenakernel.Arena)(a).Gone(id) {
				break
			}
			last = at
			runtime.Gosched()
		}
		at := <-got
		holder.Wait(b)
		require.NotZero(b, at, "the change of the dead process is there")
		took = float64(max(last-killed, 1))
		return float64(max(at-last, 1))
	}, says: "100 µs", target: func(func(string) float64) float64 { return 100e3 }}, gone}
}

// costJoin measures a join of an arena that another process has joined. A second row measures two steps of a
// join that exist because of epochs: the query of a byte lock, and the check of the name of the file.
func costJoin(b testing.TB) (rows []costRow, end func()) {
	name := newVillage(b, 1)
	joiner := proctest.Start(b, "costs/joiner", proctest.Params(name))
	path := filepath.Join("/dev/shm", name)
	f, err := os.Open(path)
	require.NoError(b, err)
	return []costRow{
		{name: "join", slice: func() float64 {
			joiner.Send(true)
			var d time.Duration
			joiner.Recv(b, &d)
			return float64(d)
		}},
		{name: "part of join that epochs added", turns: 100, run: func(n int) {
			var st unix.Stat_t
			for range n {
				shmsync.ByteLocked(f, 0)
				unix.Stat(path, &st)
			}
		}, says: "10 µs", target: func(func(string) float64) float64 { return 10e3 }},
	}, func() { joiner.Kill(b); f.Close() }
}

// measure runs one slice and returns the nanoseconds of one operation.
func (r *costRow) measure() float64 {
	if r.slice != nil {
		return r.slice()
	}
	start := time.Now()
	r.run(r.turns)
	return float64(time.Since(start)) / float64(r.turns)
}

// round measures each row once. The slices of different rows alternate.
func (c *costs) round() {
	least := make([]float64, len(c.rows))
	for s := range costSlices {
		for i := range c.rows {
			if r := &c.rows[i]; r.slices == 0 || s < r.slices {
				if ns := r.measure(); least[i] == 0 || ns < least[i] {
					least[i] = ns
				}
			}
		}
	}
	for i, r := range c.rows {
		c.ns[r.name] = append(c.ns[r.name], least[i])
	}
}

// ratio returns the ratio of a row to a reference. The last parameter is a function that computes the reference from
// the times of one round.
func (c *costs) ratio(t testing.TB, row string, to func(ns func(string) float64) float64) stats.Interval {
	ratios := make([]float64, len(c.ns[row]))
	for i, ns := range c.ns[row] {
		ratios[i] = ns / to(func(row string) float64 {
			require.Contains(t, c.ns, row)
			return c.ns[row][i]
		})
	}
	e, err := stats.Paired(ratios, 1)
	require.NoError(t, err, row)
	return e.Interval
}

func toReference(ns func(string) float64) float64 { return ns(costReference) }

// verdict says whether a ratio is within a limit. If the interval of the ratio contains the limit, this is open.
func verdict(i stats.Interval, limit float64) string {
	switch {
	case i.Hi <= limit:
		return "yes"
	case i.Lo > limit:
		return "no"
	}
	return "open"
}

// table returns the results as a table for the documents.
func (c *costs) table(t testing.TB) string {
	var s strings.Builder
	s.WriteString("| operation | ns | ratio | interval | prototype | as good | target | part of it | reached |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range c.rows {
		i := c.ratio(t, r.name, toReference)
		fmt.Fprintf(&s, "| %s | %.1f | %.2f | %.2f to %.2f |", r.name, stats.Median(c.ns[r.name]), i.Center, i.Lo, i.Hi)
		if r.level == 0 {
			s.WriteString(" | |")
		} else {
			fmt.Fprintf(&s, " %.2f | %s |", r.level, verdict(i, r.level))
		}
		if r.target == nil {
			s.WriteString(" | | |\n")
			continue
		}
		of := c.ratio(t, r.name, r.target)
		fmt.Fprintf(&s, " %s | %.2f (%.2f to %.2f) | %s |\n", r.says, of.Center, of.Lo, of.Hi, verdict(of, 1))
	}
	return s.String()
}

// TestDataCostsMeasureEveryRow: one run of the benchmark measures every cost that has a target.
// The rows in C need a C compiler.
func TestDataCostsMeasureEveryRow(t *testing.T) {
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks take time")
	}
	c := newCosts(t)
	defer c.end()
	c.round()
	for name, ns := range c.ns {
		require.Len(t, ns, 1, name)
		require.Positive(t, ns[0], name)
	}
	table := c.table(t)
	want := []string{
		"Mutex.Update, nothing", "Mutex.Update, two words", "Mutex.Update, 256 B", "Mutex.Update, 1 KiB", "Mutex.Update, 4 KiB", "Mutex.Update, ten Set",
		"Synchronized.Update of 16 B", "Synchronized.Update of 1 KiB", "Synchronized.Update of 4 KiB", "Synchronized.Update of 64 KiB",
		"Synchronized.Load of 16 B", "Synchronized.Load of 1 KiB", "Synchronized.Load of 4 KiB",
		"Mutex, rollback of 16 KiB", "next owner after gone", "join", "part of join that epochs added",
	}
	if _, err := exec.LookPath("cc"); err == nil {
		want = append(want, "C: Update, two words", "C: Update, 256 B")
	}
	for _, name := range want {
		require.Contains(t, table, "| "+name+" | ")
	}
}

// TestDataCostsNoAllocation: no operation on data that survives a death allocates, with the
// exception of a rollback.
func TestDataCostsNoAllocation(t *testing.T) {
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks allocate")
	}
	c := newCosts(t)
	defer c.end()
	measured := 0
	for _, r := range c.rows {
		if r.run != nil && !strings.Contains(r.name, "rollback") && !strings.Contains(r.name, "join") {
			require.Zero(t, testing.AllocsPerRun(100, func() { r.run(1) }), r.name)
			measured++
		}
	}
	require.Greater(t, measured, 20)
}

// TestDataCosts: an Update and a Load cost at most a certain multiple of Lock, two stores and Unlock in the
// same round. The limits are so high that the test passes on other processors, too; docs/performance.md has figures.
func TestDataCosts(t *testing.T) {
	if !proctest.Long() {
		t.Skip("needs SHMSYNC_TEST_LONG=1: it measures for seconds")
	}
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks take time")
	}
	limits := map[string]float64{
		costNothing: 10, costTwo: 15, cost256: 16, "Mutex.Update, ten Set": 40,
		"Synchronized.Update of 16 B": 7.5, "Synchronized.Update of 1 KiB": 13, "Synchronized.Load of 16 B": 3, "Synchronized.Load of 1 KiB": 9,
	}
	tooMuch := []string{"no round"}
	for range 5 { // retry, because the machine may be busy
		tooMuch = nil
		c := newCosts(t)
		c.rows = slices.DeleteFunc(c.rows, func(r costRow) bool { return limits[r.name] == 0 && r.name != costReference })
		for range 9 {
			c.round()
		}
		c.end()
		for name, most := range limits {
			i := c.ratio(t, name, toReference)
			said := fmt.Sprintf("%s: %.2f (%.2f to %.2f), at most %.2f", name, i.Center, i.Lo, i.Hi, most)
			t.Log(said)
			if i.Lo > most {
				tooMuch = append(tooMuch, said)
			}
		}
		if tooMuch == nil {
			return
		}
	}
	t.Error(tooMuch)
}
