//go:build linux && (amd64 || arm64) && gc && !race && !msan && !asan && !noasm

// This file is empty. The go command allows functions without a body, which quiet_unsafe.go
// links to the runtime's, only beside assembly.
