//go:build linux

package torture

import (
	"fmt"
	"math"
	"time"

	"github.com/shmsync/shmsync"
)

// waitLimit is how long a turn may take before nobody waits for its end.
func (t *torturer) waitLimit() time.Duration { return t.asked.Timeout / 2 }

// stuck names a turn that does not come to its end.
func (t *torturer) stuck() string {
	for s := range t.asked.Residents {
		for j := range jobs {
			for g := range tortureThreads {
				at := t.page.worker[s].since[j][g].Load()
				if at == 0 || since(at) < int64(t.waitLimit()) {
					continue
				}
				now := shmsync.Monotonic()
				if now-at-covered(t.page.excuses(at, now)) > int64(t.waitLimit()) {
					return turnText(s, j, g, at)
				}
			}
		}
	}
	return ""
}

// longest names the turn that lasts longest, whatever keeps it.
func (t *torturer) longest() (text string) {
	first := int64(math.MaxInt64)
	for s := range t.asked.Residents {
		for j := range jobs {
			for g := range tortureThreads {
				if at := t.page.worker[s].since[j][g].Load(); at != 0 && at < first {
					first, text = at, turnText(s, j, g, at)
				}
			}
		}
	}
	return text
}

// turnText describes a turn of a goroutine that began at a time.
func turnText(s, j, g int, at int64) string {
	return fmt.Sprintf("goroutine %d of resident %d is at %s for %v", g, s, jobs[j].name, time.Duration(since(at)).Round(time.Millisecond))
}
