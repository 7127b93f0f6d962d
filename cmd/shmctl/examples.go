//go:build linux

package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// example is a command line for the help and the manual page, with a text that says what it does.
type example struct{ line, does string }

// examples has two examples for each command.
var examples = map[string][2]example{
	"ls":         {{"shmctl ls", "the arenas under /dev/shm"}, {"shmctl ls --all -o wide", "also those at other paths and in memfds"}},
	"ps":         {{"shmctl ps jobs", "who is in the arena jobs"}, {"shmctl ps --gone jobs", "also who has died or left"}},
	"objects":    {{"shmctl objects jobs", "the objects of the arena jobs"}, {"shmctl objects -o name jobs", "only their names"}},
	"du":         {{"shmctl du jobs", "which types take the memory of jobs"}, {"shmctl du --watch 5s jobs", "the same every five seconds"}},
	"show":       {{"shmctl show jobs ledger", "the lock ledger, its holder and its waiters"}, {"shmctl show jobs 0x30000", "the object at an offset"}},
	"value":      {{"shmctl value jobs stats", "the fields of the value stats"}, {"shmctl --json value jobs stats", "the same for a program"}},
	"locks":      {{"shmctl locks jobs", "everything that is held in jobs"}, {"shmctl locks --older 10s jobs", "status 3 if something is held for 10 s"}},
	"waits":      {{"shmctl waits jobs", "who waits for whom, and what to do"}, {"shmctl waits --older 10s jobs", "status 3 if a wait is 10 s old"}},
	"graph":      {{"shmctl graph jobs", "the wait-for graph as text"}, {"shmctl graph -f svg jobs > jobs.svg", "the same as a picture"}},
	"top":        {{"shmctl top jobs", "a live view; q ends it"}, {"shmctl top -n 1 --sort longest jobs", "one look, the longest waits first"}},
	"check":      {{"shmctl check jobs", "damage of the arena jobs, status 3 if there is any"}, {"shmctl check jobs.dump", "the same of a dump"}},
	"metrics":    {{"shmctl metrics", "the numbers of all arenas that ls --all lists"}, {"shmctl metrics jobs", "those of one arena"}},
	"dump":       {{"shmctl dump -o jobs.dump jobs", "write jobs to a file for a bug report"}, {"shmctl dump --with-data -o jobs.dump jobs", "with the data of the program"}},
	"diff":       {{"shmctl diff before.dump after.dump", "what differs between two dumps"}, {"shmctl diff before.dump jobs", "what has changed since a dump"}},
	"load":       {{"shmctl load jobs.dump ./jobs.arena", "make a file of a dump"}, {"shmctl load jobs.dump /tmp/jobs.arena", "the same elsewhere"}},
	"reap":       {{"shmctl reap --dry-run jobs", "who is dead and not reaped"}, {"shmctl reap jobs", "reap the dead"}},
	"recover":    {{"shmctl recover jobs rows --key 4711", "make a key of the MultiLock rows usable"}, {"shmctl recover --all jobs", "make all locks usable that deaths have left"}},
	"set":        {{"shmctl set jobs ledger spin=none", "waiters of ledger do not spin"}, {"shmctl set jobs ledger spin=adaptive", "the default again"}},
	"create":     {{"shmctl create jobs", "an arena of 64 MiB"}, {"shmctl create --size 1048576 jobs", "an arena of 1 MiB"}},
	"delete":     {{"shmctl delete jobs ledger", "delete the object ledger"}, {"shmctl delete jobs 0x30000", "the object at an offset"}},
	"rm":         {{"shmctl rm jobs", "remove an arena that no process is in"}, {"shmctl rm --force jobs", "remove the file whoever uses it"}},
	"completion": {{"shmctl completion bash > /etc/bash_completion.d/shmctl", "completions for bash"}, {"shmctl completion fish | source", "for fish, in this shell"}},
	"man":        {{"shmctl man | man -l -", "read the manual page"}, {"shmctl man > /usr/local/share/man/man1/shmctl.1", "install it"}},
}

// addExamples puts the examples into the help of the commands.
func addExamples(model *kong.Application) {
	for _, n := range commands(model) {
		var b strings.Builder
		b.WriteString("Examples:\n")
		for _, e := range examples[n.Name] {
			fmt.Fprintf(&b, "\n    %s\n        %s\n", e.line, e.does)
		}
		n.Detail = b.String()
	}
}

// withoutJSON are the commands whose output has no JSON form.
var withoutJSON = map[string]bool{"metrics": true, "completion": true, "man": true}
