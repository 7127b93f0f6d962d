//go:build crashpoint

package crashpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Enabled reports whether this program was built with the tag crashpoint.
const Enabled = true

const (
	envKill  = "SHMSYNC_CRASHPOINT"
	envStop  = "SHMSYNC_CRASHPOINT_STOP"
	envDelay = "SHMSYNC_CRASHPOINT_DELAY"
)

// armed is an action that runs at a crash point. The field left is how many more hits it takes until the action runs.
type armed struct {
	left   int
	action func()
}

var state struct {
	sync.Mutex
	fromEnv sync.Once
	hits    map[string]int
	armed   map[string][]*armed
	delay   delay // of every point
}

// Hit marks a crash point, at which a test may let the process die. It counts the hit, and runs the actions that are
// armed for this hit. It panics if name is not registered.
func Hit(name string) {
	if !registered(name) {
		panic("crashpoint: Hit of unregistered name " + strconv.Quote(name))
	}
	state.fromEnv.Do(armFromEnv)
	for _, action := range count(name) {
		action()
	}
	state.delay.pass()
}

// count counts one hit of name and returns the actions to run. The caller runs them without holding the lock, because
// an action may itself hit or arm a point.
func count(name string) []func() {
	state.Lock()
	defer state.Unlock()
	if state.hits == nil {
		state.hits = make(map[string]int)
	}
	state.hits[name]++
	var due []func()
	rest := state.armed[name][:0]
	for _, a := range state.armed[name] {
		if a.left--; a.left == 0 {
			due = append(due, a.action)
			continue
		}
		rest = append(rest, a)
	}
	if len(rest) == 0 {
		delete(state.armed, name)
	} else {
		state.armed[name] = rest
	}
	return due
}

// HitCount returns how often this process has passed the point name.
func HitCount(name string) int {
	state.Lock()
	defer state.Unlock()
	return state.hits[name]
}

// Arm makes the n'th following Hit of name kill the process with SIGKILL. It
// panics if name is not registered or n is less than one.
func Arm(name string, n int) { ArmFunc(name, n, dieHere) }

// ArmStop makes the n'th following Hit of name stop the process with SIGSTOP,
// until another process continues it. It panics as Arm does.
func ArmStop(name string, n int) { ArmFunc(name, n, stopHere) }

// ArmFunc makes the n'th following Hit of name call f on the goroutine that
// hits it. It panics as Arm does.
func ArmFunc(name string, n int, f func()) {
	if !registered(name) {
		panic("crashpoint: arming unregistered name " + strconv.Quote(name))
	}
	if n < 1 {
		panic(fmt.Sprintf("crashpoint: arming %q for hit %d", name, n))
	}
	state.fromEnv.Do(armFromEnv)
	arm(name, n, f)
}

func arm(name string, n int, f func()) {
	state.Lock()
	defer state.Unlock()
	if state.armed == nil {
		state.armed = make(map[string][]*armed)
	}
	state.armed[name] = append(state.armed[name], &armed{left: n, action: f})
}

// Disarm disarms all points, including those that the environment has armed.
func Disarm() {
	state.fromEnv.Do(func() {})
	state.Lock()
	defer state.Unlock()
	clear(state.armed)
}

// armFromEnv arms the points that the environment names. It runs at the first Hit or Arm. An init function would be too
// early, because packages that are initialised after this one register names.
func armFromEnv() {
	for env, action := range map[string]func(){envKill: dieHere, envStop: stopHere} {
		spec := os.Getenv(env)
		if spec == "" {
			continue
		}
		name, n, err := parseSpec(spec)
		if err != nil {
			panic(fmt.Sprintf("crashpoint: %s=%q: %v", env, spec, err))
		}
		arm(name, n, action)
	}
	d, err := parseDelay(os.Getenv(envDelay))
	if err != nil {
		panic(fmt.Sprintf("crashpoint: %s: %v", envDelay, err))
	}
	state.delay = d
}

// parseSpec parses "name" or "name:n".
func parseSpec(spec string) (name string, n int, err error) {
	name, count, counted := strings.Cut(spec, ":")
	n = 1
	if counted {
		if n, err = strconv.Atoi(count); err != nil {
			return "", 0, err
		}
	}
	if n < 1 {
		return "", 0, fmt.Errorf("hit %d: hits count from 1", n)
	}
	if !registered(name) {
		return "", 0, fmt.Errorf("%q is not a registered crash point", name)
	}
	return name, n, nil
}

// registered reports whether name has been registered.
func registered(name string) bool {
	registry.RLock()
	defer registry.RUnlock()
	_, ok := registry.names[name]
	return ok
}
