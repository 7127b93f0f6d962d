package topology

import (
	"math/rand/v2"
	"slices"
)

// mostEnumerated limits how many pairs of CPUs Pairs lists for two leaves, which are sets of CPUs. If there are more
// pairs, Pairs draws some of them at random.
const mostEnumerated = 4096

// Pairs chooses different pairs of CPUs of a class. The parameter most is the largest number of pairs. The pairs are
// spread evenly over the pairs of nodes, and then over the pairs of leaves. A leaf is a set of CPUs that are equally
// near each other.
//
// The first pair is the pair that Representative returns, and pairs with CPU 0 come last. The order of the CPUs in a
// pair is random. The same seed gives the same pairs.
func (t *Topology) Pairs(cpus []int, class Class, most int, seed uint64) (pairs [][2]int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	seen := map[[2]int]bool{}
	add := func(x, y int, either bool) bool {
		key := [2]int{min(x, y), max(x, y)}
		if seen[key] || len(pairs) == most {
			return false
		}
		seen[key] = true
		if either && rng.IntN(2) == 1 {
			x, y = y, x
		}
		pairs = append(pairs, [2]int{x, y})
		return true
	}
	if first := t.Representative(cpus, class); len(first) > 1 {
		add(first[0], first[1], false)
	}
	var withZero [][2]int
	sources := t.sourcesOf(cpus, class, rng)
	for more := true; more && len(pairs) < most; {
		more = false
		for _, s := range sources {
			for pair, ok := s.next(t, class, rng); ok; pair, ok = s.next(t, class, rng) {
				if pair[0] == 0 || pair[1] == 0 {
					withZero = append(withZero, pair)
					continue
				}
				if add(pair[0], pair[1], true) {
					more = true
					break
				}
			}
		}
	}
	for _, pair := range withZero {
		add(pair[0], pair[1], true)
	}
	return pairs
}

// pairSource has the pairs of CPUs between two leaves, which are sets of CPUs that are equally near each other. The
// pairs are in a random order.
type pairSource struct {
	a, b  []int
	found [][2]int
	ready bool
}

// sourcesOf returns a source for each pair of leaves whose CPUs are in the class. Sources for different pairs of NUMA
// nodes alternate in the list.
func (t *Topology) sourcesOf(cpus []int, class Class, rng *rand.Rand) (list []*pairSource) {
	byNodes := map[[2]int][]*pairSource{}
	var order [][2]int
	t.VisitLeaves(cpus, func(of Class, a, b []int) {
		if of != class {
			return
		}
		x, _ := t.CPU(a[0])
		y, _ := t.CPU(b[0])
		key := [2]int{x.Node, y.Node}
		if byNodes[key] == nil {
			order = append(order, key)
		}
		byNodes[key] = append(byNodes[key], &pairSource{a: a, b: b})
	})
	rng.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
	longest := 0
	for _, key := range order {
		sources := byNodes[key]
		rng.Shuffle(len(sources), func(i, k int) { sources[i], sources[k] = sources[k], sources[i] })
		longest = max(longest, len(sources))
	}
	for i := range longest {
		for _, key := range order {
			if sources := byNodes[key]; i < len(sources) {
				list = append(list, sources[i])
			}
		}
	}
	return list
}

// next returns the next pair of the source. ok is false if there is none left.
func (s *pairSource) next(t *Topology, class Class, rng *rand.Rand) (pair [2]int, ok bool) {
	if !s.ready {
		s.ready = true
		s.found = t.pairsBetween(class, s.a, s.b, rng)
	}
	if len(s.found) == 0 {
		return pair, false
	}
	pair, s.found = s.found[0], s.found[1:]
	return pair, true
}

// pairsBetween returns pairs of CPUs of a class, one from a and one from b, in a random order.
func (t *Topology) pairsBetween(class Class, a, b []int, rng *rand.Rand) (pairs [][2]int) {
	take := func(x, y int) {
		if x != y && t.Class(x, y) == class {
			pairs = append(pairs, [2]int{x, y})
		}
	}
	switch {
	case class.Base() == SMT: // there are few pairs, so a random draw would miss them
		for _, core := range t.Groups(a, ByCore) {
			for i, x := range core {
				for _, y := range core[i+1:] {
					take(x, y)
				}
			}
		}
	case len(a)*len(b) > mostEnumerated:
		for range mostEnumerated {
			take(a[rng.IntN(len(a))], b[rng.IntN(len(b))])
		}
		return pairs
	default:
		same := slices.Equal(a, b)
		for i, x := range a {
			for k, y := range b {
				if !same || i < k {
					take(x, y)
				}
			}
		}
	}
	rng.Shuffle(len(pairs), func(i, k int) { pairs[i], pairs[k] = pairs[k], pairs[i] })
	return pairs
}
