//go:build gc && !noasm

#include "textflag.h"

// func Pause(n uint32)
//
//	for ; n != 0; n-- { PAUSE }
//
// Intel SDM vol. 2, PAUSE: a hint that the code is a spin-wait loop.
TEXT ·Pause(SB), NOSPLIT, $0-4
	MOVL	n+0(FP), CX
	TESTL	CX, CX
	JZ	done
loop:
	PAUSE
	SUBL	$1, CX
	JNZ	loop
done:
	RET

// func LoadFence()
//
// The body is empty. Intel SDM vol. 3, 9.2.2, and AMD APM vol. 2, 7.2: loads are not reordered with
// other loads. Only the compiler could still move or merge loads across this place, and it does not
// do so across a call into assembly. LFENCE would in addition wait for instructions to complete,
// which is not needed.
TEXT ·LoadFence(SB), NOSPLIT, $0-0
	RET

// func StoreRelease32(p *uint32, v uint32)
//
//	*p = v
//
// Intel SDM vol. 3, 9.2.2: a store is not reordered with earlier loads, nor with
// earlier stores (other than string and non-temporal ones, which Go does not
// leave pending). So a plain store is a release.
TEXT ·StoreRelease32(SB), NOSPLIT, $0-12
	MOVQ	p+0(FP), AX
	MOVL	v+8(FP), CX
	MOVL	CX, (AX)
	RET

// func Goroutine() uintptr
//
//	return g
//
// A Quick Guide to Go's Assembler, "Architecture-specific details": the address of the g structure of the
// running goroutine is in the thread-local storage. The two loads are those of runtime/go_tls.h.
TEXT ·Goroutine(SB), NOSPLIT, $0-8
	MOVQ	TLS, CX
	MOVQ	0(CX)(TLS*1), AX
	MOVQ	AX, ret+0(FP)
	RET
