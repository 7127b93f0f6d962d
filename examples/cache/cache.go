package main

import (
	"hash/fnv"
	"math/bits"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// cache is a hash map with open addressing, in an arena. One Mutex with an undo log guards the whole map. If a process
// is killed in put, grow or evict, the undo log takes its changes back.
type cache struct {
	a    *arena.Arena
	m    *prims.Mutex
	head *head
	half func(step string) // called in the middle of each change, so that the boss can kill the process there
}

//go:generate go run github.com/shmsync/shmsync/cmd/shmgen -type head,entry -o reader/cache_shm.h

// head is the same type as struct head of reader/cache_shm.h.
type head struct {
	Table arena.Offset // offset of the table; each slot has the offset of an entry, or unused, or dropped
	Slots uint64       // number of slots of the table: a power of two, or 0
	Taken uint64       // number of slots with an entry, or dropped
	Count uint64       // number of entries
	Bytes uint64       // bytes of all keys and values
	Hand  uint64       // the slot at which evict continues
}

const unused, dropped = arena.Offset(0), arena.Offset(1)

// entry is the same type as struct entry of reader/cache_shm.h. The bytes of the key and of the value follow it.
type entry struct {
	Hash  uint64
	Key   uint32 // length in bytes
	Value uint32 // length in bytes
	Read  uint32 // 1: read since evict last examined the entry; only a hint, so never saved
	_     uint32
}

const entryBytes = 24

func openCache(a *arena.Arena) (*cache, error) {
	m, err := prims.OpenMutex(a, "cache", &prims.MutexOptions{Policy: prims.PolicyRollback})
	if err != nil {
		return nil, err
	}
	h, err := arena.Value[head](a, "cache head")
	return &cache{a: a, m: m, head: h, half: func(string) {}}, err
}

// put sets the value of key. It first evicts entries, so that the keys and values never have more bytes in total than
// the parameter most says.
func (c *cache) put(key string, value []byte, most uint64) error {
	return c.m.Update(func(tx *prims.Tx) error {
		h, need := c.head, uint64(len(key)+len(value))
		prims.Save(tx, h) // save the whole head once
		if old := c.find(key); old != nil {
			c.drop(tx, old)
		}
		for h.Count > 0 && h.Bytes+need > most {
			c.evict(tx)
		}
		if 4*(h.Taken+1) > 3*h.Slots {
			c.grow(tx)
		}
		off := tx.Alloc(entryBytes+need, 0) // this memory is new, so it need not be saved
		e := arena.At[entry](c.a, off)
		*e = entry{Hash: hash(key), Key: uint32(len(key)), Value: uint32(len(value))}
		copy(c.key(off, e), key)
		copy(c.value(off, e), value)
		prims.Set(tx, c.place(e.Hash), off)
		c.half("put")
		h.Count, h.Taken, h.Bytes = h.Count+1, h.Taken+1, h.Bytes+need
		return nil
	})
}

// get returns a copy of the value of key, or nil if the key is not in the cache.
func (c *cache) get(key string) []byte {
	c.m.Lock()
	defer c.m.Unlock()
	slot := c.find(key)
	if slot == nil {
		return nil
	}
	e := arena.At[entry](c.a, *slot)
	e.Read = 1
	return append([]byte{}, c.value(*slot, e)...)
}

// grow makes a new table without the slots of dropped entries.
func (c *cache) grow(tx *prims.Tx) {
	h, old := c.head, *c.head
	h.Slots = max(8, uint64(1)<<bits.Len64(2*h.Count))
	h.Table, h.Taken = tx.Alloc(8*h.Slots, 0), h.Count
	for i := range old.Slots {
		if off := *arena.At[arena.Offset](c.a, old.Table+arena.Offset(8*i)); off > dropped {
			*c.place(arena.At[entry](c.a, off).Hash) = off
			c.half("grow")
		}
	}
	if old.Slots > 0 {
		tx.Free(old.Table)
	}
}

// evict goes round the table. It removes the next entry that was not read since evict last examined it.
func (c *cache) evict(tx *prims.Tx) {
	for h := c.head; ; {
		slot := c.slot(h.Hand)
		h.Hand++
		if *slot <= dropped {
			continue
		}
		if e := arena.At[entry](c.a, *slot); e.Read != 0 {
			e.Read = 0
			continue
		}
		c.half("evict")
		c.drop(tx, slot)
		return
	}
}

func (c *cache) drop(tx *prims.Tx, slot *arena.Offset) {
	e := arena.At[entry](c.a, *slot)
	c.head.Count--
	c.head.Bytes -= uint64(e.Key + e.Value)
	tx.Free(*slot)
	prims.Set(tx, slot, dropped)
}

// find returns the slot of key, or nil if the key is not in the cache.
func (c *cache) find(key string) *arena.Offset {
	for i, hash := uint64(0), hash(key); i < c.head.Slots; i++ {
		slot := c.slot(hash + i)
		if *slot == unused {
			return nil
		}
		if *slot == dropped {
			continue
		}
		if e := arena.At[entry](c.a, *slot); e.Hash == hash && string(c.key(*slot, e)) == key {
			return slot
		}
	}
	return nil
}

// place returns the first unused slot for a key with the given hash.
func (c *cache) place(hash uint64) *arena.Offset {
	for ; *c.slot(hash) != unused; hash++ {
	}
	return c.slot(hash)
}

func (c *cache) slot(i uint64) *arena.Offset {
	return arena.At[arena.Offset](c.a, c.head.Table+arena.Offset(8*(i&(c.head.Slots-1))))
}

func (c *cache) key(off arena.Offset, e *entry) []byte {
	return c.a.Segment().Bytes()[off+entryBytes:][:e.Key]
}

func (c *cache) value(off arena.Offset, e *entry) []byte {
	return c.a.Segment().Bytes()[off+entryBytes+arena.Offset(e.Key):][:e.Value]
}

func hash(key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	return h.Sum64()
}
