//go:build linux

package main

import (
	"cmp"
	"slices"
)

// interval64 is a span of time.
type interval64 struct{ from, to int64 }

// covered is how much time the spans cover together.
func covered(lists ...[]interval64) (sum int64) {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(x, y interval64) int { return cmp.Compare(x.from, y.from) })
	end := int64(0)
	for _, x := range all {
		if x.to > end {
			sum += x.to - max(x.from, end)
			end = x.to
		}
	}
	return sum
}
