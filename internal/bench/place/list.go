//go:build linux

package place

import (
	"fmt"
	"strconv"
	"strings"
)

const maxInts = 1 << 16 // more than the CPUs of any host

// ParseInts reads a list of numbers in one of these forms: 1,2,4, 0-3,8, 1:8, 1:9:2 or 1:64:*2.
func ParseInts(text string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(text, ",") {
		fields := strings.Split(part, ":")
		if from, to, ok := strings.Cut(part, "-"); ok && len(fields) == 1 {
			fields = []string{from, to}
		}
		from, err := strconv.Atoi(fields[0])
		if err != nil || from < 0 || len(fields) > 3 {
			return nil, fmt.Errorf("%q is no number or range", part)
		}
		to, step, factor := from, 1, 1
		if len(fields) > 1 {
			if to, err = strconv.Atoi(fields[1]); err != nil || to < from {
				return nil, fmt.Errorf("%q is no range", part)
			}
		}
		if len(fields) > 2 {
			times, isFactor := strings.CutPrefix(fields[2], "*")
			n, err := strconv.Atoi(times)
			if err != nil || n < 1 || isFactor && (n < 2 || from == 0) {
				return nil, fmt.Errorf("%q has no valid step", part)
			}
			if isFactor {
				step, factor = 0, n
			} else {
				step = n
			}
		}
		for v, more := from, true; more; v = v*factor + step {
			if len(list) == maxInts {
				return nil, fmt.Errorf("%q has more than %d numbers", text, maxInts)
			}
			list = append(list, v)
			more = v <= (to-step)/factor // otherwise the next number is above the range, and may overflow
		}
	}
	return list, nil
}

// JoinInts returns a list of numbers, separated by commas.
func JoinInts(list []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", ",")
}
