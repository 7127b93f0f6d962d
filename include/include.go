// Package include contains the C library as text, for programs of this module that compile C.
package include

import _ "embed" // for Header

// Header is the text of shmsync.h.
//
//go:embed shmsync.h
var Header string
