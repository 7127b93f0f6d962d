package shm

import "golang.org/x/sys/unix"

// mpolModes has the mode numbers of include/uapi/linux/mempolicy.h of Linux 6.18. These numbers
// never change.
var mpolModes = [...]uintptr{
	PolicyDefault:            unix.MPOL_DEFAULT,
	PolicyBind:               unix.MPOL_BIND,
	PolicyPreferred:          unix.MPOL_PREFERRED,
	PolicyInterleave:         unix.MPOL_INTERLEAVE,
	PolicyPreferredMany:      unix.MPOL_PREFERRED_MANY,
	PolicyWeightedInterleave: unix.MPOL_WEIGHTED_INTERLEAVE,
	PolicyLocal:              unix.MPOL_LOCAL,
}

// mpolSince maps a mode to the version of Linux that introduced it.
var mpolSince = map[PolicyMode]string{
	PolicyPreferredMany:      "5.15",
	PolicyWeightedInterleave: "6.9",
}

const (
	// fallocKeepSize allocates space without changing the size of the file: FALLOC_FL_KEEP_SIZE,
	// include/uapi/linux/falloc.h.
	fallocKeepSize = unix.FALLOC_FL_KEEP_SIZE
	// fallocPunchHole frees space. The kernel accepts it only together with fallocKeepSize.
	fallocPunchHole = unix.FALLOC_FL_PUNCH_HOLE
	// memfdSeals forbids changes of the size of a memfd, and further seals.
	memfdSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
)
