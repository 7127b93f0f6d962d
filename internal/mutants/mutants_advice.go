package main

// adviceMutants are mistakes in the advice that shmbench gives. Tests with invented measurements find them.
var adviceMutants = []mutant{
	{
		name: "any effect is large enough for advice",
		file: "internal/bench/report/contrast.go",
		old:  "stats.Paired(ratios(worse, better), c.least)",
		new:  "stats.Paired(ratios(worse, better), 1)",
		pkg:  "internal/bench/report", run: "TestAdviceOfInventedRounds",
	},
	{
		name: "comparisons are not corrected for their number",
		file: "internal/bench/report/contrast.go",
		old:  "range stats.Holm(ps) {",
		new:  "range ps {",
		pkg:  "internal/bench/report", run: "TestAdviceOfInventedRounds",
	},
	{
		name: "advice without proof of place",
		file: "internal/bench/report/recommend_class.go",
		old:  "ok := r.Metrics[\"in-place\"]; !ok || share < inPlaceLeast {",
		new:  "ok := r.Metrics[\"in-place\"]; ok && share < 0 {",
		pkg:  "internal/bench/report", run: "TestCohortAdviceNeedsProof",
	},
	{
		name: "the node of memory is ignored",
		file: "internal/bench/report/recommend_class.go",
		old:  "to, err := strconv.Atoi(strings.TrimPrefix(c.Params[\"mem\"], \"bind:\"))",
		new:  "to, err := from, error(nil)",
		pkg:  "internal/bench/report", run: "TestPlantedFactsAreFound",
	},
	{
		name: "nodes count without the number of their workers",
		file: "internal/bench/report/recommend_mem.go",
		old:  "weight[c.Params[\"node\"]] * v",
		new:  "v",
		pkg:  "internal/bench/report", run: "TestMemoryAdvice",
	},
	{
		name: "advice uses dirty rounds",
		file: "internal/bench/report/recommend.go",
		old:  "r.Status == bench.StatusOK && !r.Dirty {",
		new:  "r.Status == bench.StatusOK {",
		pkg:  "internal/bench/report", run: "TestDirtyRoundsAreLeftOut",
	},
	{
		name: "advice on fewer clean rounds than planned",
		file: "internal/bench/report/contrast.go",
		old:  "r.Made-r.Dirty >= r.Planned {",
		new:  "r.Made >= r.Planned {",
		pkg:  "internal/bench/report", run: "TestDirtyRoundsAreLeftOut",
	},
	{
		name: "a dirty round is not repeated",
		file: "internal/bench/engine/judge.go",
		old:  "\t\tj.owed++\n",
		new:  "",
		pkg:  "cmd/shmbench", run: "TestDirtyRoundsAreRepeated",
	},
}
