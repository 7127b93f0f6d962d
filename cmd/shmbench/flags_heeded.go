//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/plan"
)

// commandScenarios lists, for each command, the scenarios (kinds of measurement) that the command runs.
var commandScenarios = map[string][]string{
	"uncontended": {"uncontended"},
	"handoff":     {"handoff", "wake"},
	"lock":        {"lock", "open"},
	"crash":       {"crash"},
	"wake":        {"wake", "herd"},
	"oversub":     {"oversub"},
	"peers":       {"uncontended", "handoff", "wake", "lock", "readers", "rw", "sem", "cond", "event", "barrier", "queue", "crash"},
	"waiters":     {"waiters", "idle"},
	"rw":          {"readers", "rw"},
	"sem":         {"sem"},
	"cond":        {"cond"},
	"event":       {"event"},
	"seq":         {"seq"},
	"multi":       {"multi"},
	"barrier":     {"barrier"},
	"queue":       {"queue"},
	"padding":     {"padding"},
	"home":        {"home"},
	"stream":      {"stream"},
	"bias":        {"intruder", "fence"},
	"mem":         {"mem"},
	"matrix":      {"matrix"},
}

// scenarioFlags lists, for each scenario, the flags that affect it in addition to those in [bench.Scenario].Keys.
var scenarioFlags = map[string][]string{
	"seq": {"gap", "slow"}, "mem": {"mib", "nodes"}, "stream": {"mib", "nodes"}, "crash": {"kills", "role"}, "lock": {"lines", "spin"}, "matrix": {"nodes"},
}

// settled lists, for each scenario, the parameters in [bench.Scenario].Keys whose values no flag changes.
var settled = map[string][]string{"idle": {"place"}}

// runFlags are the flags that say how measurements are run and shown. They apply to every scenario.
var runFlags = []string{"cpus", "nodes", "topology", "prim", "variant", "time", "warmup", "count", "seed", "shuffle", "timeout", "max-cells",
	"strict", "format", "out", "html", "cc", "helper", "dry-run", "verbose"}

// otherFlags lists the flags of the commands that measure no scenario, or that choose their measurements themselves.
var otherFlags = map[string][]string{
	"bars":      {"cpus", "nodes", "topology", "time", "warmup", "count", "kills", "seed", "shuffle", "timeout", "strict", "format", "out", "html", "cc", "helper", "dry-run", "verbose"},
	"helper":    {"cc"},
	"topo":      {"format", "out", "html", "topology"},
	"compare":   {},
	"recommend": {"format"},
	"report":    {"out"},
	"export":    {"format"},
	"torture":   {"seed", "timeout", "format", "out", "cc", "dry-run"},
	"stopstorm": {"prim", "procs", "quota", "seed", "timeout", "format", "out", "cc"},
	"selftest":  {"timeout", "strict", "dry-run"},
}

// heeds reports whether the command uses the flag. A command accepts every common flag, even if it ignores the flag.
func heeds(command, flag string) bool {
	if list, ok := otherFlags[command]; ok {
		return slices.Contains(list, flag)
	}
	names, ok := commandScenarios[command]
	if !ok || slices.Contains(runFlags, flag) {
		return true // a suite, or a command that is not in these tables
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return flag == "arena" && plan.Movable(name) || slices.Contains(bench.ScenarioByName(name).Keys, flag) && !slices.Contains(settled[name], flag) || slices.Contains(scenarioFlags[name], flag)
	})
}

// helpOf prints the help of a command. It omits the flags that the command ignores.
func helpOf(options kong.HelpOptions, ctx *kong.Context) error {
	if node := ctx.Selected(); node != nil {
		node.Detail += examplesText(node.Name)
		for _, f := range ctx.Model.Flags {
			f.Hidden = f.Hidden || f.Name != "help" && !heeds(node.Name, f.Name)
		}
	}
	return kong.DefaultHelpPrinter(options, ctx)
}

// refuseZeros returns an error if the user gave 0 for a flag whose value 0 means "not given". Otherwise --time 0
// would silently give the default.
func refuseZeros(ctx *kong.Context) error {
	for _, p := range ctx.Path {
		if p.Flag == nil || !slices.Contains([]string{"time", "count", "kills", "timeout"}, p.Flag.Name) {
			continue
		}
		if p.Flag.Target.IsValid() && p.Flag.Target.IsZero() {
			return fmt.Errorf("--%s 0: give more than 0, or leave it out for the default", p.Flag.Name)
		}
	}
	return nil
}

// warnUnheeded warns about each flag that the user gave although the command ignores it.
func warnUnheeded(w io.Writer, ctx *kong.Context) {
	node := ctx.Selected()
	if node == nil || node.Hidden {
		return
	}
	own := map[*kong.Flag]bool{}
	for _, f := range node.Flags {
		own[f] = true
	}
	for _, p := range ctx.Path {
		if p.Flag != nil && !own[p.Flag] && !heeds(node.Name, p.Flag.Name) {
			fmt.Fprintf(w, "shmbench: warning: --%s means nothing to %s\n", p.Flag.Name, node.Name)
		}
	}
}
