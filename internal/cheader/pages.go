package cheader

import "strings"

// A page is one manual page of section 3.
type page struct {
	name     string   // shmsync_NAME(3)
	about    string   // what the page is about, for its NAME section
	prefixes []string // how the names of its declarations begin, after shmsync_ or SHMSYNC_
	see      []string // other pages to refer to
}

// pages lists the manual pages. The page of a declaration is the page with the longest prefix that matches the name of
// the declaration.
var pages = []page{
	{"arena", "join an arena that processes share", []string{"arena", "participant", "epoch", "offset", "RECREATE", "LIFETIME", "KERNEL_IO", "ABI", "LAYOUT_VERSION", "CREATE_ONLY", "OPEN_EXISTING"}, []string{"alloc", "error", "recover"}},
	{"alloc", "memory of an arena, by offset and by name", []string{"alloc", "free", "at", "block_", "value_", "delete"}, []string{"arena", "queue"}},
	{"error", "why a call failed", []string{"error", "strerror", "who_died", "version", "VERSION"}, []string{"arena"}},
	{"mutex", "a mutual exclusion lock between processes", []string{"mutex", "POLICY", "SPIN"}, []string{"tx", "fairmutex", "rwmutex", "synchronized", "cond", "recover"}},
	{"tx", "transactions, whose changes a death undoes", []string{"tx", "mutex_begin", "mutex_trybegin", "mutex_timedbegin"}, []string{"mutex", "synchronized"}},
	{"futex", "an eventcount: waits for posts", []string{"futex"}, []string{"sequencer", "event"}},
	{"sequencer", "a counter that goes up, and waits for its values", []string{"sequencer"}, []string{"futex", "wait"}},
	{"event", "waits until something is set", []string{"event"}, []string{"sequencer", "wait"}},
	{"queue", "a bounded queue of items of one size", []string{"queue", "lease", "layout"}, []string{"signalwaker", "semaphore"}},
	{"waitgroup", "waits until all work is done", []string{"waitgroup"}, []string{"latch", "barrier"}},
	{"latch", "waits until a number of steps is done", []string{"latch"}, []string{"waitgroup", "barrier"}},
	{"once", "calls a function in one process, once", []string{"once"}, []string{"future", "arena"}},
	{"barrier", "parties meet at the end of each phase", []string{"barrier"}, []string{"latch", "waitgroup"}},
	{"fairmutex", "a lock in the order of arrival", []string{"fairmutex"}, []string{"mutex", "multilock", "recover"}},
	{"future", "a result that is set once", []string{"future"}, []string{"once", "wait"}},
	{"cond", "a condition variable", []string{"cond"}, []string{"mutex", "sequencer"}},
	{"semaphore", "permits that come back when their process dies", []string{"semaphore"}, []string{"mutex", "queue"}},
	{"rwmutex", "a lock for readers and writers", []string{"rwmutex"}, []string{"mutex", "rwspinlock", "recover"}},
	{"spinlock", "a lock for short holds, whose waiters spin", []string{"spinlock"}, []string{"mutex", "rwspinlock"}},
	{"rwspinlock", "a lock for readers and writers, whose waiters spin", []string{"rwspinlock"}, []string{"rwmutex", "spinlock"}},
	{"wait", "wait for one of several objects, or for all", []string{"wait_", "awaitable", "AWAIT"}, []string{"sequencer", "event", "future"}},
	{"multilock", "a lock for each key of 64 bits", []string{"multilock", "hold"}, []string{"mutex", "fairmutex", "recover"}},
	{"signalwaker", "schedule up to 4096 queues to their workers", []string{"signalwaker", "gate", "signal", "nearest_bit", "STAT"}, []string{"queue", "semaphore"}},
	{"recover", "make all objects usable again", []string{"recover_all", "lost"}, []string{"arena", "mutex"}},
	{"synchronized", "a value with its lock, changed wholly or not at all", []string{"synchronized"}, []string{"mutex", "tx"}},
}

// pageOf returns the page of a declaration, or nil if there is none.
func pageOf(d *Decl) (found *page) {
	longest := 0
	name := strings.TrimPrefix(strings.TrimPrefix(d.Name, "shmsync_"), "SHMSYNC_")
	for i := range pages {
		for _, p := range pages[i].prefixes {
			if strings.HasPrefix(name, p) && len(p) > longest {
				longest, found = len(p), &pages[i]
			}
		}
	}
	return found
}
