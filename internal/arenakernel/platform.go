package arenakernel

import (
	"encoding/binary"
	"math/bits"
	"runtime"
	"strconv"

	"github.com/shmsync/shmsync"
)

// The layout of an arena has 64-bit words in little-endian order. A 32-bit program could neither map a
// large arena, nor share 64-bit atomics and robust lists with its peers. A program for another machine
// can be built, but cannot join an arena.
var (
	programBits         = bits.UintSize
	programLittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
)

// checkPlatform returns an error that Is [shmsync.ErrNotSupported] in a program that cannot join
// arenas.
func checkPlatform(op, name string) error {
	if programBits == 64 && programLittleEndian {
		return nil
	}
	return &shmsync.Error{Op: op, Object: name, Err: shmsync.ErrNotSupported,
		Detail: "arenas need a 64-bit little-endian program; this one is " + runtime.GOOS + "/" + runtime.GOARCH +
			", with words of " + strconv.Itoa(programBits) + " bits"}
}
