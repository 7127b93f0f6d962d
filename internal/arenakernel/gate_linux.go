package arenakernel

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
)

const (
	errBusy     = unix.EBUSY
	errDeadlock = unix.EDEADLK
	openFlags   = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
)

// anyByteLocked reports whether another open file description has locked any of the n bytes at off.
func anyByteLocked(f *os.File, off, n int64) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_SET, Start: off, Len: n}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return false, os.NewSyscallError("fcntl", err)
	}
	return lock.Type != unix.F_UNLCK, nil
}

// anyOwner returns a list with the uid of the owner of a file, or nil if the uid is not known. As
// TrustUIDs of [shm.Options], the list allows the file to have any owner.
func anyOwner(st os.FileInfo) []uint32 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return []uint32{sys.Uid}
	}
	return nil
}

// inode returns the inode number of a file.
func inode(st os.FileInfo) uint64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Ino
	}
	return 0
}

// renameat2 is a variable so that tests can make it fail.
var renameat2 = unix.Renameat2

// renameNew renames a file, and never replaces another file. If there is a file at the new path,
// the error Is [fs.ErrExist]. If the kernel or the file system does not support such a rename, the
// error Is [shmsync.ErrNotSupported].
func renameNew(from, to string) error {
	switch err := renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err {
	case unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP:
		return shmsync.ErrNotSupported
	default:
		return err
	}
}

// renameNoReplace renames a file as renameNew does. If renameNew is not supported, renameNoReplace
// uses a hard link, and the file has both names for a moment.
func renameNoReplace(from, to string) error {
	if err := renameNew(from, to); !errors.Is(err, shmsync.ErrNotSupported) {
		return err
	}
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}

// outlivesBoot reports whether the file may survive a reboot because it may be on a disk.
func outlivesBoot(f *os.File) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return false
	}
	switch uint32(fs.Type) { // the type of this field differs between architectures
	case unix.TMPFS_MAGIC, unix.HUGETLBFS_MAGIC, unix.RAMFS_MAGIC:
		return false
	}
	return true
}

// nextData returns the first offset from off on that is not in a hole of the file. If there is none, it returns the
// end of the file, or off if that is larger. A read at this offset shows that the file has become shorter. If the
// file system does not know its holes, nextData returns off.
func nextData(f *os.File, off uint64) uint64 {
	switch data, err := unix.Seek(int(f.Fd()), int64(off), unix.SEEK_DATA); {
	case err == nil:
		return uint64(data)
	case err == unix.ENXIO:
		if st, err := f.Stat(); err == nil {
			return max(off, uint64(st.Size()))
		}
	}
	return off
}

// bootID identifies the boot of the computer during which a process runs. It is zero if the process
// cannot read the ID, because /proc is missing, or because ProcSubset=pid of systemd hides
// /proc/sys.
type bootID [16]byte

// isAfter reports whether the computer was restarted between the two boots. It returns true if both
// IDs are known and differ. If an ID is unknown, it returns false.
func (now bootID) isAfter(then bootID) bool {
	return now != bootID{} && then != bootID{} && now != then
}

// isShortage reports whether a call failed because the process or the system has run out of descriptors or memory for
// the moment. Such a failure does not show what the system supports.
func isShortage(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// askForBoot reads the ID of the boot, if the file may survive a reboot. If this process cannot read the ID because of
// a shortage, for example of descriptors, askForBoot returns an error. If /proc does not have the ID, the ID is zero,
// and there is no error.
func (a *Arena) askForBoot() error {
	if !a.onDisk {
		return nil
	}
	_, err := selfIdentity()
	return err
}

// rebooted reports whether the computer was restarted since the previous epoch began. The caller has called askForBoot.
func (a *Arena) rebooted() bool {
	if !a.onDisk {
		return false
	}
	id, _ := selfIdentity()
	return bootID(id.bootID).isAfter(bootID(a.slice(hdrEpochBoot, 16)))
}

// rememberBoot records the boot in which an epoch begins. A process that does not know its boot keeps
// the recorded ID. So a later process that knows its boot notices a reboot that happened in between.
func (a *Arena) rememberBoot() {
	if id, _ := selfIdentity(); a.onDisk && id.bootID != [16]byte{} {
		copy(a.slice(hdrEpochBoot, 16), id.bootID[:])
	}
}

// epochOfWriteBack returns what writeBack needs to know about this participant, which is leaving:
// the number of its epoch, and the number of the epoch after which the file was last written back.
// The result named in is false if this participant was never admitted. Such a participant does not
// know whether the last participant wrote the file back.
//
// Preconditions: the slot is not free yet, so the epoch cannot end.
func (a *Arena) epochOfWriteBack() (number, synced uint32, in bool) {
	w := a.epochWord()
	if w.phase() == epochClaiming {
		w = w.end()
	}
	return w.number(), a.u32(hdrSynced).Load(), a.u32(a.slot(a.mySlot)+slotAdmission).Load() == admissionIn
}

// writeBack makes the kernel write the arena's file back to its disk, if this participant was the
// last one in the arena. This participant has already left, in the epoch with the given number.
// Without the write-back, a reboot before the next epoch could leave pages of different times in
// the file. writeBack reads the slot words before and after the write-back. If none of them has
// changed, no process used the file meanwhile. The parameter named synced is the number of the epoch
// of the last write-back. If another participant has recorded a later one, writeBack records nothing.
func (a *Arena) writeBack(number, synced uint32) {
	if !a.onDisk {
		return
	}
	words := make([]slotWord, a.geo.slots+1)
	for i := 1; i <= a.geo.slots; i++ {
		words[i] = a.slotState(i)
		if words[i].taken() {
			return
		}
	}
	b := a.seg.Bytes()
	if unix.Msync(b, unix.MS_SYNC) != nil {
		return
	}
	for i := 1; i <= a.geo.slots; i++ {
		if a.slotState(i) != words[i] {
			return
		}
	}
	a.u32(hdrSynced).CompareAndSwap(synced, number)
	unix.Msync(b[:headerSize], unix.MS_SYNC)
}
