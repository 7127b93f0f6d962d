//go:build crashpoint

package crashpoint

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// delay makes passes of crash points slow at random. A pass is slow with the probability 1/every, and then takes a
// random time of up to most. So each step between two crash points is sometimes slow, as on a busy machine. The zero
// value delays nothing.
type delay struct {
	every int
	most  time.Duration
}

func (d delay) pass() {
	if d.every != 0 && rand.IntN(d.every) == 0 {
		time.Sleep(rand.N(d.most))
	}
}

// parseDelay parses "every:most", where most is a number of microseconds.
func parseDelay(spec string) (d delay, err error) {
	if spec == "" {
		return d, nil
	}
	every, most, _ := strings.Cut(spec, ":")
	n, err := strconv.Atoi(every)
	us, errMost := strconv.Atoi(most)
	if err != nil || errMost != nil || n < 1 || us < 1 {
		return d, fmt.Errorf("%q is not of the form every:microseconds", spec)
	}
	return delay{n, time.Duration(us) * time.Microsecond}, nil
}
