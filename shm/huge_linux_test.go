package shm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fakeHuge makes this package see the given settings and mounts instead of those of the system.
func fakeHuge(t *testing.T, shmem, one, mounts string) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "hugepages-2048kB"), 0o700))
	write := func(name, text string) {
		if text != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
		}
	}
	write("shmem_enabled", shmem)
	write("hugepages-2048kB/shmem_enabled", one)
	write("mountinfo", mounts)
	oldDir, oldMounts := hugeDir, mountsFile
	hugeDir, mountsFile = dir, filepath.Join(dir, "mountinfo")
	t.Cleanup(func() { hugeDir, mountsFile = oldDir, oldMounts })
}

// TestWhyNoHuge: a program asks for transparent huge pages and cannot get any. The error says what
// would help.
func TestWhyNoHuge(t *testing.T) {
	const shm = "25 24 0:23 / /dev/shm rw,relatime shared:3 - tmpfs tmpfs rw,size=1k"
	const disk = "26 24 8:1 / / rw - ext4 /dev/sda1 rw"
	inherit := "always [inherit] within_size advise never"
	for _, c := range []struct {
		name, shmem, one, mounts string
		dev                      uint64
		want                     string
	}{
		{"memfd", "always within_size advise [never] deny force", inherit, shm, unix.Mkdev(0, 1), "shmem_enabled is never: write advise to it"},
		{"memfd, advised", "always within_size [advise] never deny force", inherit, shm, unix.Mkdev(0, 1), ""},
		{"memfd, of one size", "always within_size advise [never] deny force", "always inherit within_size [advise] never", shm, unix.Mkdev(0, 1), ""},
		{"tmpfs", "[advise] never", "", shm, unix.Mkdev(0, 23), "mount -o remount,huge=advise /dev/shm"},
		{"tmpfs, mounted so", "[never]", "", shm + ",huge=advise", unix.Mkdev(0, 23), ""},
		{"tmpfs, mounted without", "[never]", "", shm + ",huge=never", unix.Mkdev(0, 23), "is mounted without them"},
		{"denied", "never [deny]", "", shm + ",huge=always", unix.Mkdev(0, 23), "is deny"},
		{"forced", "deny [force]", "", shm, unix.Mkdev(0, 23), ""},
		{"disk", "[always] never", "", shm + "\n" + disk, unix.Mkdev(8, 1), "files on ext4 get none"},
		{"no kernel for it", "", "", shm, unix.Mkdev(0, 23), "this kernel has none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeHuge(t, c.shmem, c.one, c.mounts)
			if c.want == "" {
				require.Empty(t, noHuge(c.dev))
				return
			}
			require.Contains(t, noHuge(c.dev), c.want)
		})
	}
}

// TestHugeAskedAndGot: a segment for which huge pages were requested either has some, or says why it
// has none.
func TestHugeAskedAndGot(t *testing.T) {
	const size = 8 << 20
	for _, named := range []bool{false, true} {
		opts := &Options{HugePages: HugeTransparent, Populate: true}
		s, err := CreateMemfd("thp", size, nil, opts)
		if named {
			s, err = Create(uniqueName(t), size, nil, opts)
		}
		require.NoError(t, err)
		closing(t, s)
		n, err := s.HugeBytes()
		require.NoError(t, err)
		if n == 0 && len(s.Degraded()) == 0 {
			t.Skip("needs a free transparent huge page: they are allowed, but none was free")
		}
		for _, why := range s.Degraded() {
			require.Zero(t, n)
			require.ErrorIs(t, why, ErrNotSupported)
			require.ErrorContains(t, why, s.Name())
		}
	}
}

func TestHugeIn(t *testing.T) {
	const smaps = `1000-3000 rw-s 00000000 00:01 7 /memfd:a (deleted)
Size:                  8 kB
ShmemPmdMapped:     2048 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
VmFlags: rd wr sh
3000-4000 rw-s 00002000 00:01 7 /memfd:a (deleted)
Private_Hugetlb:    4096 kB
4000-5000 rw-p 00000000 00:00 0 [heap]
ShmemPmdMapped:     8192 kB
`
	n, err := hugeIn(strings.NewReader(smaps), 0x1000, 0x4000)
	require.NoError(t, err)
	require.EqualValues(t, 6<<20, n)
	_, err = hugeIn(strings.NewReader("1000-3000 rw-s\nShmemPmdMapped: x kB\n"), 0, 1<<62)
	require.Error(t, err)
}
