//go:build linux

package main

import "strings"

// examples has two or more example command lines for each command, each with a text that says what the command line is
// for. Tests parse all of these command lines, and plan the measurements of those that measure.
var examples = map[string][][2]string{
	"suite":       {{"--out before.json", "measure in a minute or three, and keep the figures"}, {"--std --html report.html", "measure for ten minutes, and draw a page"}, {"--budget 10m", "more rounds, for what is undecided"}},
	"uncontended": {{"--prim 'shmsync:*,c:robust'", "the library beside a robust pthread mutex"}, {"--count 10 --format bench", "for benchstat"}},
	"handoff":     {{"--place same,cross --count 10", "on one CPU and on two"}, {"--place classes --hog 0,1", "by what CPUs share, beside a busy loop"}},
	"lock":        {{"--procs 2,4 --threads 1,8 --cs 100ns,1us", "contenders and critical sections"}, {"--rate 10000,100000", "an open loop"}},
	"crash":       {{"--kills 300 --role holder,waiter,reader", "victims in each role"}, {"--arena memfd,/dev/shm", "by where the memory lies"}},
	"wake":        {{"--gap 0,20us,2ms", "against how long the waiter slept"}, {"--place classes", "by what CPUs share"}},
	"oversub":     {{"--load 1,2,4 --spin auto,0", "more workers than CPUs, spinning or not"}, {"--load 2 --quota 50", "half of the CPU time"}},
	"peers":       {{"--prim 'shmsync:*,c:*'", "the library and peers in C"}, {"--strict", "fail if a peer is missing here"}},
	"waiters":     {{"--waiters 1000,10000", "memory and threads of many waiters"}, {"--prim shmsync:mutex-each --waiters 1000", "of one primitive"}},
	"rw":          {{"--read 50,90,99", "shares of reads"}, {"--prim '*:mutex,*:rw*'", "what an RWMutex gains over a Mutex"}},
	"sem":         {{"--permits 1,2,4", "numbers of permits"}, {"--procs 4 --cs 1us", "long holds of four processes"}},
	"cond":        {{"--capacity 16,256", "small and large buffers"}, {"--procs 2 --threads 8", "many goroutines"}},
	"event":       {{"--gap 100us", "waiters that have just gone to sleep"}, {"--procs 4 --threads 8", "many waiters"}},
	"seq":         {{"--waiters 10000 --wake 1:10000:*10", "some of many"}, {"--wake 3 --slow 300us", "consumers that fall behind"}},
	"multi":       {{"--keys 1,16,1024 --locks 1,2", "stripes, and holds of two keys"}, {"--skew uniform,zipf:1.2", "popular keys"}},
	"barrier":     {{"--procs 4", "four parties"}, {"--cs 0,1us --threads 8", "with work between phases"}},
	"queue":       {{"--procs 2,4 --batch 1,16", "single items and batches"}, {"--place classes --capacity 64", "by what CPUs share"}},
	"padding":     {{"--place classes", "by what CPUs share"}, {"--pad 8,64,128,256 --procs 2", "more distances"}},
	"home":        {{"--place classes", "by what the CPUs share"}, {"--home first,third --prim shmsync:mutex", "the library's lock at home and abroad"}},
	"bias":        {{"--gap 100us,1ms,10ms", "frequent and rare intruders"}, {"--prim shmsync:fence --procs 1,2,4,8", "a fence by the number of busy CPUs"}},
	"stream":      {{"--streams 0,1,2,4 --read 100,67", "more cores, and two reads for each write"}, {"--duty 10,25,50,100", "latency against bandwidth"}},
	"mem":         {{"--mem bind,interleave", "each node, and all in turn"}, {"--huge none,thp --mib 256", "small and large pages"}},
	"topo":        {{"--html host.html", "this host as a picture"}, {"--record host", "keep it for plans on other hosts"}},
	"matrix":      {{"--html matrix.html", "all pairs of CPUs as a heat map"}, {"--sample cpu --cpus 0-7", "all pairs of some CPUs"}, {"--all -n", "the time that all pairs of this host take"}},
	"bars":        {{"--only 'round trip'", "some bars"}, {"--count 10 --out bars.json", "with narrower intervals"}},
	"compare": {{"old.json new.json", "changes beyond 3 %"}, {"--metric p99-ns --least 10 --all old.json new.json", "of the tail, with all cells"},
		{"old1.json old2.json old3.json old4.json -- new1.json new2.json new3.json new4.json", "several runs of each"}},
	"recommend": {{"run.json", "each rule with its evidence"}, {"--format json run.json", "for programs"}},
	"report":    {{"run.json run.html", "a page of one run"}, {"before.json after.json both.html", "two runs side by side"}},
	"export":    {{"--format bench run.json", "for benchstat"}, {"--format hgrm run.json", "for plotters of HdrHistogram"}},
	"helper":    {{"./peers", "build it here"}, {"--cc aarch64-linux-gnu-gcc ./peers", "for a host of another architecture"}},
	"torture":   {{"--duration 10m --seed 0", "ten minutes, another plan each time"}, {"--only mutex,queue --seed 7 -n", "the plan of a seed"}, {"--only synchronized,tx,rwtx", "crash-safe data, in Go and C"}},
	"stopstorm": {{"--prim mutex,queue --stops 200", "stops at random moments"}, {"--prim waitgroup --step 1 --stops 100000 --format json", "a stop after each instruction"}},
	"selftest":  {{"--only exclusion", "some proofs"}, {"--strict", "fail if a proof cannot run here"}},
}

// examplesText returns the examples of a command, for the end of its help.
func examplesText(command string) string {
	var b strings.Builder
	for i, e := range examples[command] {
		if i == 0 {
			b.WriteString("\n\nExamples:")
		}
		b.WriteString("\n  # " + e[1] + "\n  shmbench " + command + " " + e[0])
	}
	return b.String()
}
