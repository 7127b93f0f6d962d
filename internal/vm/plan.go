package main

import (
	"fmt"
	"strings"
	"time"
)

// program is a line of a plan.
type program struct {
	name  string
	limit time.Duration
	dir   string
	argv  []string
	env   []string // in addition to the environment of this process
}

// parsePlan parses a plan. The package comment describes the format.
func parsePlan(text string) ([]program, error) {
	var programs []program
	var env []string
	n := 0
	for line := range strings.Lines(text) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if fields[0] == "set" {
			for _, setting := range fields[1:] {
				if name, _, ok := strings.Cut(setting, "="); !ok || name == "" {
					return nil, fmt.Errorf("plan, line %d: %q is no NAME=VALUE", n, setting)
				}
			}
			env = append(env, fields[1:]...)
			continue
		}
		if len(fields) < 4 {
			return nil, fmt.Errorf("plan, line %d: want a name, a limit, a directory and a program", n)
		}
		limit, err := time.ParseDuration(fields[1])
		if err != nil || limit <= 0 {
			return nil, fmt.Errorf("plan, line %d: %q is no limit", n, fields[1])
		}
		programs = append(programs, program{
			name:  fields[0],
			limit: limit,
			dir:   fields[2],
			argv:  fields[3:],
			env:   env[:len(env):len(env)],
		})
	}
	if len(programs) == 0 {
		return nil, fmt.Errorf("the plan has no program")
	}
	return programs, nil
}
