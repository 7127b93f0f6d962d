package arenakernel

import "strconv"

// Offset is a position in an arena, in bytes from its start. Unlike an address it means the same in
// every process. 0 stands for no position.
type Offset uint64

// String renders the offset in hexadecimal.
func (o Offset) String() string { return "0x" + strconv.FormatUint(uint64(o), 16) }
