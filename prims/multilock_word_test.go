//go:build linux

package prims

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// TestMultiLockHoldTable tests the table of multilock_word.go for every kind, with extreme
// participants and stamps.
func TestMultiLockHoldTable(t *testing.T) {
	for kind := range ownerKind(8) {
		for _, name := range wordNames {
			for _, stamp := range []uint32{0, 1, 1<<32 - 1} {
				h, o := makeKeyHold(kind, name, stamp), makeOwner(kind, name)
				require.Equal(t, o, h.owner())
				require.Equal(t, stamp, h.stamp())
				require.Equal(t, h == 0 || kind == keyFree || kind == keyCached, h.free())
				valid := o.valid() && (o != ownerFree || stamp == 0) || kind >= keyGranted && name != 0
				require.Equal(t, valid, h.valid(), "%#x", uint64(h))
				if !valid {
					require.Contains(t, h.String(), "corrupt (0x")
					continue
				}
				next := h
				switch kind {
				case keyBiased:
					next = makeKeyHold(kindHeld, name, stamp)
					require.Equal(t, makeKeyHold(keyCached, name, stamp), h+keyHold(holdUnlock))
				case keyCached:
					next = makeKeyHold(keyFree, name, stamp)
					require.Equal(t, makeKeyHold(keyBiased, name, stamp+1), h+keyHold(holdLock))
				}
				require.Equal(t, next, h.claimed())
				require.Equal(t, next != h, h.fast())
				if h != next {
					require.Equal(t, next, h&^holdFast, "what a claim takes")
				}
				result, _ := h.result()
				if h.fast() || kind == keyFree {
					require.Equal(t, lockCorrupt, result)
					h = next // a reap and a granter find the hold after a claim
				}
				if kind = h.kind(); kind == keyFree {
					continue
				}
				o = h.owner()
				result, who := h.result()
				require.Equal(t, kind == kindOwnerDead, result == lockOwnerDead)
				require.Equal(t, kind == kindNotRecoverable, result == lockNotRecoverable || h.granted())
				require.Equal(t, kind == keyGranted && name != 0, h.granted())
				if h.granted() {
					require.Equal(t, lockGranted, result, "its waiter may come")
					require.Equal(t, makeKeyHold(kindHeld, name, stamp), h.accepted())
					require.Equal(t, h.passing(), h.ownerDied(PolicyReport), "nobody has held it")
					require.Equal(t, h.passing(), h.ownerDied(PolicyRelease))
				}
				if !o.held() {
					continue
				}
				require.Zero(t, who)
				require.Equal(t, makeKeyHold(kindReserved, name, stamp), h.passing())
				require.Equal(t, makeKeyHold(kindOwnerDead, name, stamp), h.ownerDied(PolicyReport))
				release := h.ownerDied(PolicyRelease)
				if kind == kindRecovering {
					require.Equal(t, kindOwnerDead, release.owner().kind())
				} else {
					require.Equal(t, h.passing(), release)
				}
				require.True(t, release.valid() && !release.free(), "an entry that may be waited for is not free")
			}
		}
	}
	require.Equal(t, arena.ParticipantID(77), makeKeyHold(kindNotRecoverable, 0, 77).died())
	require.Equal(t, arena.ParticipantID(78), makeKeyHold(kindOwnerDead, 78, 5).died())
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

// TestMultiLockBucketABI: a bucket has the layout that docs/abi.md describes.
func TestMultiLockBucketABI(t *testing.T) {
	tables := abiTables(t, "Bucket of keys", "offset", "size", "field", "order")
	require.Len(t, tables, 1)
	body := reflect.TypeFor[multiLockBucket]()
	for _, row := range tables[0].Rows {
		f, ok := body.FieldByName(strings.Trim(row.Cells[2], "`"))
		require.True(t, ok, row.Cells[2])
		require.EqualValues(t, abiNumber(t, row.Cells[0]), f.Offset)
		require.EqualValues(t, abiNumber(t, row.Cells[1]), f.Type.Size())
	}
	require.Contains(t, abiText(t, "MultiLock"), "0x9e3779b97f4a7c15")
	require.Equal(t, 0x9e3779b97f4a7c15>>58, bucketOf(1, 6), "the hash is ABI")
	require.Zero(t, bucketOf(1<<64-1, 0))
	require.Equal(t, 0x9e37, bucketOf(1, 16))
}
