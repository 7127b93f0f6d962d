package shm

import (
	"fmt"
	"syscall"
)

// Dir is the directory that holds named segments.
const Dir = "/dev/shm"

// maxNameLen is the length in bytes of the longest name. Linux allows 255 bytes. The other 55 bytes
// are for what tempName adds.
const maxNameLen = 200

// ValidName reports whether name can name a segment: 1 to 200 bytes of
// [A-Za-z0-9._-], other than "." and "..". The error says what is wrong and
// matches EINVAL.
func ValidName(name string) error {
	bad := func(format string, args ...any) error {
		return &opError{op: "name", name: fmt.Sprintf("%.220q", name), why: fmt.Sprintf(format, args...), err: syscall.EINVAL}
	}
	switch {
	case name == "":
		return bad("is empty")
	case len(name) > maxNameLen:
		return bad("is %d bytes long, more than %d", len(name), maxNameLen)
	case name == "." || name == "..":
		return bad("is a directory")
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == '-':
		default:
			return bad("has byte %q at %d; only letters, digits, '.', '_' and '-' are allowed; a path has a '/'", c, i)
		}
	}
	return nil
}

// namedPath returns the path of the segment called name.
func namedPath(name string) (string, error) {
	if err := ValidName(name); err != nil {
		return "", err
	}
	return Dir + "/" + name, nil
}
