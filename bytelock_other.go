//go:build !linux

package shmsync

import "os"

// LockByte reports ErrNotSupported on this system.
func LockByte(f *os.File, off int64) (bool, error) { return false, ErrNotSupported }

// UnlockByte reports ErrNotSupported on this system.
func UnlockByte(f *os.File, off int64) error { return ErrNotSupported }

// ByteLocked reports ErrNotSupported on this system.
func ByteLocked(f *os.File, off int64) (bool, error) { return false, ErrNotSupported }
