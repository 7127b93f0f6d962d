//go:build linux

package prims

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMultiLockHoldTable tests the table of multilock_word.go for every kind, with extreme
// participants and tags.
func TestMultiLockHoldTable(t *testing.T) {
	l := recordLock{hooks: new(multiBucket)}
	for kind := range ownerKind(8) {
		for _, name := range wordNames {
			for _, tag := range []uint32{0, 1, 1<<32 - 1} {
				s := makeKeyState(kind, name)
				if kind == kindBiased {
					require.True(t, keyOpen(makeRecorded(uint32(s), tag)))
					s = makeKeyState(kindHeld, name)
				}
				v := makeRecorded(s.opened(), tag)
				require.Equal(t, s, keyStateOf(v))
				require.Equal(t, kind == kindHeld || kind == kindBiased, keyOpen(v))
				valid := kind <= kindBiased || kind <= kindNotRecoverable && name != 0
				require.Equal(t, valid, s.valid(), "%#x", uint32(s))
				require.Equal(t, !valid, strings.Contains(s.String(), "corrupt (0x"), "%v", s)
				require.Equal(t, s.err() != nil, l.lost(ownerWord(s)))
				var w atomic.Uint64
				w.Store(uint64(v))
				closed := closeKey(&w)
				require.Equal(t, makeRecorded(uint32(s), tag), closed, "the tag is that of the hold")
				require.EqualValues(t, closed, w.Load())
				require.False(t, keyOpen(closed))
				if !valid {
					continue
				}
				require.Equal(t, s.kind() == kindReserved, s.granted())
				require.Equal(t, name != 0 && (kind <= kindReserved || kind == kindRecovering), s.holder() == name && s.holder() != 0)
				if s.holder() == 0 || s.granted() {
					continue
				}
				require.Equal(t, makeKeyState(kindOwnerDead, name), s.ownerDied(PolicyReport))
				if kind == kindRecovering {
					require.Equal(t, makeKeyState(kindOwnerDead, name), s.ownerDied(PolicyRelease))
				} else {
					require.Equal(t, keyFree, s.ownerDied(PolicyRelease))
				}
			}
		}
	}
}

// TestMultiLockSpread: keys of any pattern are spread over all buckets.
func TestMultiLockSpread(t *testing.T) {
	for name, key := range map[string]func(i uint64) uint64{
		"counting": func(i uint64) uint64 { return i },
		"pages":    func(i uint64) uint64 { return i << 12 },
		"high":     func(i uint64) uint64 { return i << 48 },
		"negative": func(i uint64) uint64 { return -i },
	} {
		count := make([]int, 1<<multiLogDefault)
		const n = 100
		for i := range uint64(n << multiLogDefault) {
			count[bucketOf(key(i), multiLogDefault)]++
		}
		for i, c := range count {
			require.InDelta(t, n, c, n/2, "%s, bucket %d", name, i)
		}
	}
	require.EqualValues(t, multiLogDefault, multiLog(0))
	for n, want := range map[int]uint{1: 0, 2: 1, 3: 2, 64: 6, 65: 7} {
		require.Equal(t, want, multiLog(n))
	}
}

// TestMultiLockBucketABI: the bucket of a key is that of docs/abi.md.
func TestMultiLockBucketABI(t *testing.T) {
	require.Contains(t, abiText(t, "MultiLock"), "0x9e3779b97f4a7c15")
	require.Equal(t, 0x9e3779b97f4a7c15>>58, bucketOf(1, 6), "the hash is ABI")
	require.Zero(t, bucketOf(1<<64-1, 0))
	require.Equal(t, 0x9e37, bucketOf(1, 16))
}
