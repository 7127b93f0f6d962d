//go:build !(linux && (amd64 || arm64) && gc && !race && !msan && !asan && !noasm)

package arenakernel

// quietBuild says that a watcher can watch quietly.
const quietBuild = false

// quietWatch is a sleep of the death watcher that events do not end which leave it nothing to
// do. There is none here: the watcher is awake for every event. See quiet_unsafe.go.
type quietWatch struct{}

func (a *Arena) newQuietWatch() *quietWatch { return nil }

func (q *quietWatch) watch(notices) (slept bool) { return false }

func (q *quietWatch) mayTell(*Arena) {}
