//go:build linux

package prims_test

import "crypto/rand"

func randomName() string { return rand.Text()[:8] }
