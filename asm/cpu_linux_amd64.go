//go:build gc && !noasm

package asm

// CPU returns the number of the CPU on which the caller runs, and the number of the CPU's NUMA node. Both are hints,
// because the caller may have moved to another CPU when CPU returns. CPU makes no system call. It returns false for ok
// if it would need a system call.
//
// Linux keeps both numbers in the TSC_AUX register of each CPU, which RDPID reads, and in the limit of a segment
// descriptor, which LSL reads.
func CPU() (cpu, node uint32, ok bool) {
	var v uint32
	if haveRDPID {
		v = rdpid()
	} else if v, ok = lslCPUNode(); !ok {
		return 0, 0, false
	}
	cpu, node = splitCPUNode(v)
	return cpu, node, true
}

// splitCPUNode decodes what vdso_encode_cpunode of arch/x86/include/asm/segment.h encodes.
func splitCPUNode(v uint32) (cpu, node uint32) { return v & 0xfff, v >> 12 }

// haveRDPID is CPUID.(EAX=7,ECX=0):ECX[22].
var haveRDPID = detectRDPID()

func detectRDPID() bool {
	if maxLeaf, _, _, _ := cpuid(0, 0); maxLeaf < 7 {
		return false
	}
	_, _, ecx, _ := cpuid(7, 0)
	return ecx>>22&1 != 0
}

//go:noescape
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)

//go:noescape
func rdpid() uint32

//go:noescape
func lslCPUNode() (limit uint32, ok bool)
