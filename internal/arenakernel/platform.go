package arenakernel

import (
	"encoding/binary"
	"math/bits"
	"runtime"
	"strconv"

	"github.com/shmsync/shmsync"
)

// The layout has 64-bit words in the order of little-endian machines. A program with words of
// 32 bits could neither map a large arena nor share 64-bit atomics with its peers' robust
// lists, so such a program builds, and cannot join.
var (
	programBits         = bits.UintSize
	programLittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
)

// checkPlatform is an error that Is [shmsync.ErrNotSupported] in a program that cannot join arenas.
func checkPlatform(op, name string) error {
	if programBits == 64 && programLittleEndian {
		return nil
	}
	return &shmsync.Error{Op: op, Object: name, Err: shmsync.ErrNotSupported,
		Detail: "arenas need a 64-bit little-endian program; this one is " + runtime.GOOS + "/" + runtime.GOARCH +
			", with words of " + strconv.Itoa(programBits) + " bits"}
}
