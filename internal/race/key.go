package race

// Key identifies a synchronisation object, such as a lock in shared memory. It is the same for all mappings and handles
// of the object in this process.
type Key uint64

// KeyOf returns the key of the object at off in the segment whose file has the
// given device and inode.
func KeyOf(dev, ino, off uint64) Key {
	return Key(mix(mix(mix(dev)+ino) + off))
}

// mix is the finalizer of splitmix64. It is a bijection in which each bit of x
// affects each bit of the result.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
