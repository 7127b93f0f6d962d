package main

// adviceMutants are mistakes in the advice that shmbench gives. Tests with invented measurements find them.
var adviceMutants = []mutant{
	{
		name: "shmbench bases advice on differences of any size",
		file: "internal/bench/report/contrast.go",
		old:  "stats.Paired(ratios(worse, better), c.least)",
		new:  "stats.Paired(ratios(worse, better), 1)",
		pkg:  "internal/bench/report", run: "TestAdviceOfInventedRounds",
	},
	{
		name: "shmbench does not correct significance tests for the number of comparisons",
		file: "internal/bench/report/contrast.go",
		old:  "range stats.Holm(ps) {",
		new:  "range ps {",
		pkg:  "internal/bench/report", run: "TestAdviceOfInventedRounds",
	},
	{
		name: "shmbench gives advice without proof of the CPUs on which the threads ran",
		file: "internal/bench/report/recommend_class.go",
		old:  "ok := r.Metrics[\"in-place\"]; !ok || share < inPlaceLeast {",
		new:  "ok := r.Metrics[\"in-place\"]; ok && share < 0 {",
		pkg:  "internal/bench/report", run: "TestCohortAdviceNeedsProof",
	},
	{
		name: "shmbench ignores on which NUMA node the memory of a measurement lies",
		file: "internal/bench/report/recommend_class.go",
		old:  "to, err := strconv.Atoi(strings.TrimPrefix(c.Params[\"mem\"], \"bind:\"))",
		new:  "to, err := from, error(nil)",
		pkg:  "internal/bench/report", run: "TestPlantedFactsAreFound",
	},
	{
		name: "shmbench does not weight NUMA nodes by the number of their workers",
		file: "internal/bench/report/recommend_mem.go",
		old:  "weight[c.Params[\"node\"]] * v",
		new:  "v",
		pkg:  "internal/bench/report", run: "TestMemoryAdvice",
	},
	{
		name: "shmbench bases advice on rounds that other programs have disturbed",
		file: "internal/bench/report/recommend.go",
		old:  "r.Status == bench.StatusOK && !r.Dirty {",
		new:  "r.Status == bench.StatusOK {",
		pkg:  "internal/bench/report", run: "TestDirtyRoundsAreLeftOut",
	},
	{
		name: "shmbench gives advice from fewer undisturbed rounds than planned",
		file: "internal/bench/report/contrast.go",
		old:  "r.Made-r.Dirty >= r.Planned {",
		new:  "r.Made >= r.Planned {",
		pkg:  "internal/bench/report", run: "TestDirtyRoundsAreLeftOut",
	},
	{
		name: "shmbench does not repeat a round that other programs have disturbed",
		file: "internal/bench/engine/judge.go",
		old:  "\t\tj.owed++\n",
		new:  "",
		pkg:  "cmd/shmbench", run: "TestDirtyRoundsAreRepeated",
	},
}
