package crashpoint

import (
	"slices"
	"strconv"
	"sync"
)

// registry holds the registered names. Packages register while they are initialised. Later, any
// goroutine may look names up.
var registry struct {
	sync.RWMutex
	names map[string]struct{}
}

// Register adds name to the registry and returns it. It is meant to initialise
// a package-level blank variable in the file that calls Hit with that name. It
// panics if name is not a valid name or is already registered.
func Register(name string) string {
	if !valid(name) {
		panic("crashpoint: invalid name " + strconv.Quote(name) + ": want lower-case words joined by dots")
	}
	registry.Lock()
	defer registry.Unlock()
	if _, dup := registry.names[name]; dup {
		panic("crashpoint: duplicate registration of " + strconv.Quote(name))
	}
	if registry.names == nil {
		registry.names = make(map[string]struct{})
	}
	registry.names[name] = struct{}{}
	return name
}

// All returns the registered names in sorted order. It lists the points of all packages that are
// linked into this program, with or without the build tag.
func All() []string {
	registry.RLock()
	defer registry.RUnlock()
	names := make([]string, 0, len(registry.names))
	for name := range registry.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// valid reports whether name consists of two or more words of [a-z0-9_], each
// starting with a letter, joined by dots.
func valid(name string) bool {
	words, start := 1, true
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z':
			start = false
		case c == '.' && !start:
			words++
			start = true
		case (c == '_' || '0' <= c && c <= '9') && !start:
		default:
			return false
		}
	}
	return words >= 2 && !start
}
