//go:build gc && !noasm

#include "textflag.h"

// func Pause(n uint32)
//
//	for ; n != 0; n-- { ISB SY }
//
// YIELD, the architecture's own hint, does nothing on most cores. ISB drains the
// pipeline, which takes about as long as PAUSE does elsewhere.
TEXT ·Pause(SB), NOSPLIT, $0-4
	MOVWU	n+0(FP), R0
	CBZW	R0, done
loop:
	ISB	$15
	SUBW	$1, R0, R0
	CBNZW	R0, loop
done:
	RET

// func LoadFence()
//
//	DMB ISHLD
//
// Arm ARM B2.3: loads before the barrier are observed before loads and stores
// after it.
TEXT ·LoadFence(SB), NOSPLIT, $0-0
	DMB	$0x9
	RET

// func StoreRelease32(p *uint32, v uint32)
//
//	store-release(*p, v)
//
// Arm ARM B2.3: STLR is observed after everything that precedes it.
TEXT ·StoreRelease32(SB), NOSPLIT, $0-12
	MOVD	p+0(FP), R0
	MOVWU	v+8(FP), R1
	STLRW	R1, (R0)
	RET

// func Goroutine() uintptr
//
//	return g
//
// cmd/internal/obj/arm64, "Register naming": the register g, R28, has the address of the g structure of the
// running goroutine.
TEXT ·Goroutine(SB), NOSPLIT, $0-8
	MOVD	g, R0
	MOVD	R0, ret+0(FP)
	RET
