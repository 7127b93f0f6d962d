//go:build !(linux && (amd64 || arm64) && gc && !race && !msan && !asan && !noasm)

package arenakernel

// quietBuild says whether a death watcher can watch quietly in this build.
const quietBuild = false

// quietWatch is a sleep of the death watcher that ends only when there is something to do. This
// build has no such sleep: the watcher wakes for every event. See quiet_unsafe.go.
type quietWatch struct{}

func (a *Arena) newQuietWatch() *quietWatch { return nil }

func (q *quietWatch) watch(*Arena, notices) (slept bool) { return false }

func (q *quietWatch) mayTell(*Arena) {}
