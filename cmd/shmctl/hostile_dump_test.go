//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
)

// A damaged dump is refused or shown. It may come from a stranger, and its head is text that everybody can edit.
func TestScribbledDumps(t *testing.T) {
	defer func(d time.Duration) { diagnose.ConfirmAfter = d }(diagnose.ConfirmAfter)
	diagnose.ConfirmAfter = time.Millisecond
	path := filepath.Join(t.TempDir(), "arena")
	require.NoError(t, os.WriteFile(path, busy(t), 0o600))
	intact, dump := path+".dump", path+".scribbled"
	soon(t, exitOK, "dump", path, "-o", intact)
	file, err := os.ReadFile(intact)
	require.NoError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(file))
	require.NoError(t, err)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	head := len(dumpMagic) + bytes.IndexByte(plain[len(dumpMagic):], '\n') + 1
	opened := 0
	for seed := range proctest.Rounds(60, uint64(1000)) {
		r := rand.New(rand.NewPCG(seed, 3))
		b := bytes.Clone(plain)
		for range 1 + r.IntN(8) {
			at := r.IntN(len(b))
			if seed%2 == 0 { // the head, and the first part
				at = r.IntN(min(head+32, len(b)))
			}
			switch r.IntN(3) {
			case 0:
				b[at] ^= 1 << r.IntN(8)
			case 1:
				b[at] = `0123456789-e."[]{},`[r.IntN(19)]
			default:
				copy(b[at:], "\\u001b[31m")
			}
		}
		if r.IntN(8) == 0 {
			b = b[:r.IntN(len(b))]
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		w.Write(b)
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile(dump, packed.Bytes(), 0o600))
		for _, args := range [][]string{{"waits", dump}, {"waits", "--older=1ns", dump}, {"ps", dump}, {"diff", intact, dump}, {"metrics", dump}} {
			code, out, errs := shmctl(args...)
			require.Contains(t, []int{exitOK, exitError, exitMissing, exitTrouble}, code, "seed %d: %v", seed, args)
			for _, r := range out + errs {
				require.False(t, r < ' ' && r != '\n' || r == 0x7f || r == 0x9b, "seed %d: %v prints %q", seed, args, r)
			}
			require.NotContains(t, out, "$ kill")
			require.NotContains(t, out, "$ echo")
			if code == exitTrouble {
				opened++
			}
		}
	}
	require.NotZero(t, opened)
	t.Log(opened, "commands showed a dump")
}
