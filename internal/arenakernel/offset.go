package arenakernel

import "strconv"

// Offset is a position in an arena, in bytes from its start. It means the same
// in every process, unlike an address. 0 is no position.
type Offset uint64

// String renders the offset in hexadecimal.
func (o Offset) String() string { return "0x" + strconv.FormatUint(uint64(o), 16) }
