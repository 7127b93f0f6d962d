//go:build !(linux && (amd64 || arm64) && gc && !race && !msan && !asan && !noasm)

package arenakernel

// quietBuild says whether the death watcher of this build can stay asleep over events that need no
// action; see quiet_unsafe.go.
const quietBuild = false

// quietWatch would be a sleep of the death watcher that ends only when there is something to do. This
// build has none, so the watcher wakes for every event. See quiet_unsafe.go.
type quietWatch struct{}

func (a *Arena) newQuietWatch() *quietWatch { return nil }

func (q *quietWatch) watch(*Arena, notices) (slept bool) { return false }

func (q *quietWatch) mayTell(*Arena) {}
