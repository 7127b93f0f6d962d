package arenakernel

import "strconv"

// Offset is a position in an arena, in bytes from its start. Unlike an address, an offset means the
// same position in every process. The offset 0 stands for no position.
type Offset uint64

// String renders the offset in hexadecimal.
func (o Offset) String() string { return "0x" + strconv.FormatUint(uint64(o), 16) }
