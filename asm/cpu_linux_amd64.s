//go:build gc && !noasm

#include "textflag.h"

// func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)
TEXT ·cpuid(SB), NOSPLIT, $0-24
	MOVL	leaf+0(FP), AX
	MOVL	subleaf+4(FP), CX
	CPUID
	MOVL	AX, eax+8(FP)
	MOVL	BX, ebx+12(FP)
	MOVL	CX, ecx+16(FP)
	MOVL	DX, edx+20(FP)
	RET

// func rdpid() uint32
//
// Intel SDM vol. 2, RDPID: the low 32 bits of IA32_TSC_AUX. Preconditions:
// haveRDPID.
TEXT ·rdpid(SB), NOSPLIT, $0-4
	RDPID	AX
	MOVL	AX, ret+0(FP)
	RET

// func lslCPUNode() (limit uint32, ok bool)
//
// 0x7b is __CPUNODE_SEG of arch/x86/include/asm/segment.h: descriptor 15, ring 3.
// LSL clears ZF if there is no such segment.
TEXT ·lslCPUNode(SB), NOSPLIT, $0-5
	MOVL	$0x7b, CX
	XORL	AX, AX
	LSLL	CX, AX
	SETEQ	ok+4(FP)
	MOVL	AX, limit+0(FP)
	RET
