//go:build linux

package subjects

import (
	"fmt"
	"path"
	"slices"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/peers"
)

// All has all subjects, that is, all implementations that can be measured, of the library and of others.
var All = slices.Concat(libSubjects, cohortSubjects, rwSubjects, semSubjects, seqSubjects, fairSubjects, barrierSubjects, condSubjects, queueSubjects, memSubjects, matrixSubjects, paddingSubjects, streamSubjects, fenceSubjects, peers.GoPeers, peers.FutexPeers, peers.MorePeers, peers.CPeers, brokenPeers, brokenKit)

// Find returns the subject with the given name.
func Find(name string) (*bench.Subject, error) {
	for _, s := range All {
		if s.Name() == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no subject %q", name)
}

// Select returns the subjects that a scenario can measure and that match the patterns. The name of a subject must match
// one of patterns, in the syntax of path.Match. If there are no patterns, each name matches. The Variant of the subject
// must match one of variants, which are such patterns, too. A hidden subject matches only a pattern that is its exact
// name.
func Select(scenario string, patterns, variants []string) ([]*bench.Subject, error) {
	var picked []*bench.Subject
	for _, s := range All {
		if !slices.Contains(s.Scenarios, scenario) {
			continue
		}
		ok := len(patterns) == 0 && !s.Hidden
		for _, p := range patterns {
			m, err := path.Match(p, s.Name())
			if err != nil {
				return nil, fmt.Errorf("--prim %q: %w", p, err)
			}
			ok = ok || p == s.Name() || m && !s.Hidden
		}
		wanted := len(variants) == 0
		for _, p := range variants {
			m, err := path.Match(p, s.Variant())
			if err != nil {
				return nil, fmt.Errorf("--variant %q: %w", p, err)
			}
			wanted = wanted || m
		}
		if ok && wanted {
			picked = append(picked, s)
		}
	}
	return picked, nil
}
