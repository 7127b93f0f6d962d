/* Made from docs/abi.md by internal/abigen; do not edit: go test ./internal/abigen -update */

/* Constants */
#define SHMSYNC__ORDER_MARK UINT64_C(16909060)
#define SHMSYNC__LAYOUT_VERSION UINT64_C(2)
#define SHMSYNC__WORD_BYTES UINT64_C(8)
#define SHMSYNC__KNOWN_COMPAT UINT64_C(0)
#define SHMSYNC__KNOWN_ROCOMPAT UINT64_C(0)
#define SHMSYNC__KNOWN_INCOMPAT UINT64_C(0)
#define SHMSYNC__HEADER_SIZE UINT64_C(4096)
#define SHMSYNC__MAX_SLOTS UINT64_C(2047)
#define SHMSYNC__MAX_GENERATION UINT64_C(262143)
#define SHMSYNC__SLOT_STRIDE UINT64_C(2048)
#define SHMSYNC__ALIVE_WORDS UINT64_C(4)
#define SHMSYNC__ALIVE_STRIDE UINT64_C(8)
#define SHMSYNC__ANNOUNCE_COUNT UINT64_C(32)
#define SHMSYNC__ANNOUNCE_STRIDE UINT64_C(32)
#define SHMSYNC__LABEL_BYTES UINT64_C(63)
#define SHMSYNC__OBIT_COUNT UINT64_C(256)
#define SHMSYNC__OBIT_STRIDE UINT64_C(128)
#define SHMSYNC__CHUNK_SIZE UINT64_C(65536)
#define SHMSYNC__BLOCK_MIN UINT64_C(64)
#define SHMSYNC__BLOCK_WORDS UINT64_C(1024)
#define SHMSYNC__BLOCK_WORD_SIZE UINT64_C(4)
#define SHMSYNC__OBJECT_HEADER UINT64_C(64)
#define SHMSYNC__NODE_SIZE UINT64_C(64)
#define SHMSYNC__MAX_OBJECT UINT64_C(4293918720)
#define SHMSYNC__MAX_OBJECT_NAME UINT64_C(255)
#define SHMSYNC__CLASSES 18
#define SHMSYNC__CLASS_SIZES { 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768, 64 }

/* Kinds of objects, and the version of each kind's layout */
#define SHMSYNC__KIND_MUTEX UINT32_C(0x5854554d) /* MUTX */
#define SHMSYNC__VERSION_MUTEX 1
#define SHMSYNC__KIND_FUTEX UINT32_C(0x58545546) /* FUTX */
#define SHMSYNC__VERSION_FUTEX 1
#define SHMSYNC__KIND_SIGNAL_WAKER UINT32_C(0x57474953) /* SIGW */
#define SHMSYNC__VERSION_SIGNAL_WAKER 1
#define SHMSYNC__KIND_SPIN_LOCK UINT32_C(0x4e495053) /* SPIN */
#define SHMSYNC__VERSION_SPIN_LOCK 1
#define SHMSYNC__KIND_RWSPIN_LOCK UINT32_C(0x50535752) /* RWSP */
#define SHMSYNC__VERSION_RWSPIN_LOCK 1
#define SHMSYNC__KIND_RWMUTEX UINT32_C(0x584d5752) /* RWMX */
#define SHMSYNC__VERSION_RWMUTEX 1
#define SHMSYNC__KIND_SEMAPHORE UINT32_C(0x414d4553) /* SEMA */
#define SHMSYNC__VERSION_SEMAPHORE 1
#define SHMSYNC__KIND_WAITABLE UINT32_C(0x54494157) /* WAIT */
#define SHMSYNC__VERSION_WAITABLE 1
#define SHMSYNC__KIND_SEQUENCER UINT32_C(0x52514553) /* SEQR */
#define SHMSYNC__VERSION_SEQUENCER 1
#define SHMSYNC__KIND_EVENT UINT32_C(0x544e5645) /* EVNT */
#define SHMSYNC__VERSION_EVENT 1
#define SHMSYNC__KIND_WAIT_GROUP UINT32_C(0x50524757) /* WGRP */
#define SHMSYNC__VERSION_WAIT_GROUP 1
#define SHMSYNC__KIND_LATCH UINT32_C(0x4843544c) /* LTCH */
#define SHMSYNC__VERSION_LATCH 1
#define SHMSYNC__KIND_BARRIER UINT32_C(0x52524142) /* BARR */
#define SHMSYNC__VERSION_BARRIER 1
#define SHMSYNC__KIND_ONCE UINT32_C(0x45434e4f) /* ONCE */
#define SHMSYNC__VERSION_ONCE 1
#define SHMSYNC__KIND_FAIR_MUTEX UINT32_C(0x52494146) /* FAIR */
#define SHMSYNC__VERSION_FAIR_MUTEX 1
#define SHMSYNC__KIND_MULTI_LOCK UINT32_C(0x544c554d) /* MULT */
#define SHMSYNC__VERSION_MULTI_LOCK 1
#define SHMSYNC__KIND_COND UINT32_C(0x444e4f43) /* COND */
#define SHMSYNC__VERSION_COND 1
#define SHMSYNC__KIND_FUTURE UINT32_C(0x52545546) /* FUTR */
#define SHMSYNC__VERSION_FUTURE 1
#define SHMSYNC__KIND_QUEUE UINT32_C(0x55455551) /* QUEU */
#define SHMSYNC__VERSION_QUEUE 1

/* Header: offsets */
#define SHMSYNC__HDR_MAGIC 0
#define SHMSYNC__HDR_ORDER 8
#define SHMSYNC__HDR_VERSION 12
#define SHMSYNC__HDR_WORD 16
#define SHMSYNC__HDR_HEADER_SIZE 20
#define SHMSYNC__HDR_COMPAT 24
#define SHMSYNC__HDR_ROCOMPAT 32
#define SHMSYNC__HDR_INCOMPAT 40
#define SHMSYNC__HDR_SIZE 48
#define SHMSYNC__HDR_ID 56
#define SHMSYNC__HDR_CREATED 72
#define SHMSYNC__HDR_SLOTS 80
#define SHMSYNC__HDR_SLOT_STRIDE 84
#define SHMSYNC__HDR_SLOTS_OFF 88
#define SHMSYNC__HDR_OBIT_OFF 96
#define SHMSYNC__HDR_OBIT_COUNT 104
#define SHMSYNC__HDR_OBIT_STRIDE 108
#define SHMSYNC__HDR_DIR_OFF 112
#define SHMSYNC__HDR_DIR_COUNT 120
#define SHMSYNC__HDR_CHUNKS_OFF 128
#define SHMSYNC__HDR_BLOCKS_OFF 136
#define SHMSYNC__HDR_HEAP_OFF 144
#define SHMSYNC__HDR_CHUNK_SIZE 152
#define SHMSYNC__HDR_BLOCK_WORDS 156
#define SHMSYNC__HDR_CHUNK_COUNT 160
#define SHMSYNC__HDR_CHECKSUM 168
#define SHMSYNC__HDR_OBITS_TOTAL 256
#define SHMSYNC__HDR_DEATHS 264
#define SHMSYNC__HDR_DIR_REACH 268
#define SHMSYNC__HDR_CHUNK_HINT 320

/* Slot: offsets */
#define SHMSYNC__SLOT_STATE 0
#define SHMSYNC__SLOT_UNDERTAKER 4
#define SHMSYNC__SLOT_CAPS 8
#define SHMSYNC__SLOT_PID 12
#define SHMSYNC__SLOT_TID 16
#define SHMSYNC__SLOT_UID 20
#define SHMSYNC__SLOT_START 24
#define SHMSYNC__SLOT_PIDNS 32
#define SHMSYNC__SLOT_JOINED 40
#define SHMSYNC__SLOT_BOOT_ID 48
#define SHMSYNC__SLOT_LABEL 64
#define SHMSYNC__SLOT_ALIVE 128
#define SHMSYNC__SLOT_DOORBELL 192
#define SHMSYNC__SLOT_READY 200
#define SHMSYNC__SLOT_DIED 208
#define SHMSYNC__SLOT_WATCH_BELL 216
#define SHMSYNC__SLOT_SETTLED 220
#define SHMSYNC__SLOT_OPENING 224
#define SHMSYNC__SLOT_WALKING 232
#define SHMSYNC__SLOT_ANNOUNCE 256

/* Announce record: offsets */
#define SHMSYNC__ANNOUNCE_OBJECT 0
#define SHMSYNC__ANNOUNCE_WORD 8
#define SHMSYNC__ANNOUNCE_SINCE 16
#define SHMSYNC__ANNOUNCE_WANTED 24

/* Obituary: offsets */
#define SHMSYNC__OBIT_SEQ 0
#define SHMSYNC__OBIT_NAME 8
#define SHMSYNC__OBIT_PID 12
#define SHMSYNC__OBIT_DIED 16
#define SHMSYNC__OBIT_FLAGS 24
#define SHMSYNC__OBIT_LABEL 32

/* Object header: offsets */
#define SHMSYNC__OBJ_KIND 0
#define SHMSYNC__OBJ_VERSION 4
#define SHMSYNC__OBJ_STATE 8
#define SHMSYNC__OBJ_NAME_OFF 12
#define SHMSYNC__OBJ_SIZE 16
#define SHMSYNC__OBJ_HASH 24
#define SHMSYNC__OBJ_CREATED 32
#define SHMSYNC__OBJ_OPEN_OFF 40
#define SHMSYNC__OBJ_LAYOUT 48

/* Bits of a slot's state: fields of the word */
#define SHMSYNC__SLOT_PHASE_SHIFT 0
#define SHMSYNC__SLOT_PHASE_MASK UINT64_C(0x7)
#define SHMSYNC__SLOT_GENERATION_SHIFT 3
#define SHMSYNC__SLOT_GENERATION_MASK UINT64_C(0x1ffff8)

/* Names: fields of the word */
#define SHMSYNC__NAME_SLOT_SHIFT 0
#define SHMSYNC__NAME_SLOT_MASK UINT64_C(0x7ff)
#define SHMSYNC__NAME_GENERATION_SHIFT 11
#define SHMSYNC__NAME_GENERATION_MASK UINT64_C(0x1ffff800)

/* Chunk words: fields of the word */
#define SHMSYNC__CHUNK_KIND_SHIFT 0
#define SHMSYNC__CHUNK_KIND_MASK UINT64_C(0x7)
#define SHMSYNC__CHUNK_RESERVED_SHIFT 3
#define SHMSYNC__CHUNK_RESERVED_MASK UINT64_C(0x8)
#define SHMSYNC__CHUNK_NUMBER_SHIFT 4
#define SHMSYNC__CHUNK_NUMBER_MASK UINT64_C(0x7fffffff0)
#define SHMSYNC__CHUNK_NAME_SHIFT 35
#define SHMSYNC__CHUNK_NAME_MASK UINT64_C(0xfffffff800000000)

/* Block words: fields of the word */
#define SHMSYNC__BLOCK_KIND_SHIFT 0
#define SHMSYNC__BLOCK_KIND_MASK UINT64_C(0x7)
#define SHMSYNC__BLOCK_NAME_SHIFT 3
#define SHMSYNC__BLOCK_NAME_MASK UINT64_C(0xfffffff8)

/* Object header: fields of the word */
#define SHMSYNC__OBJECT_PHASE_SHIFT 0
#define SHMSYNC__OBJECT_PHASE_MASK UINT64_C(0x7)
#define SHMSYNC__OBJECT_NAME_SHIFT 3
#define SHMSYNC__OBJECT_NAME_MASK UINT64_C(0xfffffff8)

/* Directory entry: fields of the word */
#define SHMSYNC__DIR_OFFSET_SHIFT 0
#define SHMSYNC__DIR_OFFSET_MASK UINT64_C(0xffffffffffff)
#define SHMSYNC__DIR_HASH_SHIFT 48
#define SHMSYNC__DIR_HASH_MASK UINT64_C(0xffff000000000000)

/* Wait node: fields of the word */
#define SHMSYNC__NODE_STATE_SHIFT 0
#define SHMSYNC__NODE_STATE_MASK UINT64_C(0xf)
#define SHMSYNC__NODE_GENERATION_SHIFT 4
#define SHMSYNC__NODE_GENERATION_MASK UINT64_C(0xfffffff0)

/* Mutex: fields of the word */
#define SHMSYNC__OWNER_NAME_SHIFT 0
#define SHMSYNC__OWNER_NAME_MASK UINT64_C(0x1fffffff)
#define SHMSYNC__OWNER_KIND_SHIFT 29
#define SHMSYNC__OWNER_KIND_MASK UINT64_C(0xe0000000)

/* Wake word: fields of the word */
#define SHMSYNC__WAKE_ANNOUNCED_SHIFT 0
#define SHMSYNC__WAKE_ANNOUNCED_MASK UINT64_C(0x1)
#define SHMSYNC__WAKE_SEQUENCE_SHIFT 1
#define SHMSYNC__WAKE_SEQUENCE_MASK UINT64_C(0xfffffffe)

/* Futex: fields of the word */
#define SHMSYNC__FUTEX_ANNOUNCED_SHIFT 0
#define SHMSYNC__FUTEX_ANNOUNCED_MASK UINT64_C(0x1)
#define SHMSYNC__FUTEX_STOPPED_SHIFT 1
#define SHMSYNC__FUTEX_STOPPED_MASK UINT64_C(0x2)
#define SHMSYNC__FUTEX_COUNTER_SHIFT 2
#define SHMSYNC__FUTEX_COUNTER_MASK UINT64_C(0xfffffffffffffffc)

/* RWMutex gate: fields of the word */
#define SHMSYNC__GATE_NAME_SHIFT 0
#define SHMSYNC__GATE_NAME_MASK UINT64_C(0x1fffffff)
#define SHMSYNC__GATE_KIND_SHIFT 29
#define SHMSYNC__GATE_KIND_MASK UINT64_C(0xe0000000)

/* Reader word: fields of the word */
#define SHMSYNC__READER_GENERATION_SHIFT 0
#define SHMSYNC__READER_GENERATION_MASK UINT64_C(0x3ffff)
#define SHMSYNC__READER_WAITING_SHIFT 18
#define SHMSYNC__READER_WAITING_MASK UINT64_C(0x1fffffc0000)
#define SHMSYNC__READER_READING_SHIFT 41
#define SHMSYNC__READER_READING_MASK UINT64_C(0xfffffe0000000000)

/* SpinLock: fields of the word */
#define SHMSYNC__SPIN_NAME_SHIFT 0
#define SHMSYNC__SPIN_NAME_MASK UINT64_C(0x1fffffff)
#define SHMSYNC__SPIN_KIND_SHIFT 29
#define SHMSYNC__SPIN_KIND_MASK UINT64_C(0xe0000000)

/* Event: fields of the word */
#define SHMSYNC__EVENT_PLACE_SHIFT 0
#define SHMSYNC__EVENT_PLACE_MASK UINT64_C(0x3)
#define SHMSYNC__EVENT_CHANGES_SHIFT 2
#define SHMSYNC__EVENT_CHANGES_MASK UINT64_C(0xfffffffffffffffc)

/* Future: fields of the word */
#define SHMSYNC__FUTURE_PRODUCER_SHIFT 0
#define SHMSYNC__FUTURE_PRODUCER_MASK UINT64_C(0x1fffffff)
#define SHMSYNC__FUTURE_SET_SHIFT 29
#define SHMSYNC__FUTURE_SET_MASK UINT64_C(0x20000000)
#define SHMSYNC__FUTURE_ABANDONED_SHIFT 30
#define SHMSYNC__FUTURE_ABANDONED_MASK UINT64_C(0x40000000)
#define SHMSYNC__FUTURE_ERRNO_SHIFT 32
#define SHMSYNC__FUTURE_ERRNO_MASK UINT64_C(0xffffffff00000000)

/* SignalWaker: fields of the word */
#define SHMSYNC__SIGNAL_SIGNALS_SHIFT 0
#define SHMSYNC__SIGNAL_SIGNALS_MASK UINT64_C(0xff)
#define SHMSYNC__SIGNAL_COUNT_SHIFT 8
#define SHMSYNC__SIGNAL_COUNT_MASK UINT64_C(0x100)

/* Signal status: fields of the word */
#define SHMSYNC__SIGNAL_STATUS_YIELD_SHIFT 0
#define SHMSYNC__SIGNAL_STATUS_YIELD_MASK UINT64_C(0x1)
#define SHMSYNC__SIGNAL_STATUS_TASKS_SHIFT 1
#define SHMSYNC__SIGNAL_STATUS_TASKS_MASK UINT64_C(0x2)

/* Gate: fields of the word */
#define SHMSYNC__SIGNAL_GATE_EXECUTOR_SHIFT 0
#define SHMSYNC__SIGNAL_GATE_EXECUTOR_MASK UINT64_C(0x1fffffff)
#define SHMSYNC__SIGNAL_GATE_SCHEDULED_SHIFT 29
#define SHMSYNC__SIGNAL_GATE_SCHEDULED_MASK UINT64_C(0x20000000)
#define SHMSYNC__SIGNAL_GATE_EXECUTING_SHIFT 30
#define SHMSYNC__SIGNAL_GATE_EXECUTING_MASK UINT64_C(0x40000000)
#define SHMSYNC__SIGNAL_GATE_EPOCH_SHIFT 32
#define SHMSYNC__SIGNAL_GATE_EPOCH_MASK UINT64_C(0xffffffff00000000)

/* Participant row: fields of the word */
#define SHMSYNC__SIGNAL_ROW_NAME_SHIFT 0
#define SHMSYNC__SIGNAL_ROW_NAME_MASK UINT64_C(0x1fffffff)
#define SHMSYNC__SIGNAL_ROW_WORKERS_SHIFT 29
#define SHMSYNC__SIGNAL_ROW_WORKERS_MASK UINT64_C(0xfffe0000000)
#define SHMSYNC__SIGNAL_ROW_SLEEPERS_SHIFT 44
#define SHMSYNC__SIGNAL_ROW_SLEEPERS_MASK UINT64_C(0xfffff00000000000)

/* capability */
#define SHMSYNC__CAP_ROBUST 1U
#define SHMSYNC__CAP_OFD 2U
#define SHMSYNC__CAP_FENCE 8U
#define SHMSYNC__CAP_WAIT_V 16U

/* phase */
#define SHMSYNC__PHASE_FREE 0U
#define SHMSYNC__PHASE_JOINING 1U
#define SHMSYNC__PHASE_LIVE 2U
#define SHMSYNC__PHASE_LEAVING 3U
#define SHMSYNC__PHASE_DEAD 4U
#define SHMSYNC__PHASE_RETIRED 5U

/* kind of chunk */
#define SHMSYNC__CHUNK_FREE 0U
#define SHMSYNC__CHUNK_CLAIMED 1U
#define SHMSYNC__CHUNK_SLAB 2U
#define SHMSYNC__CHUNK_SWEEPING 3U
#define SHMSYNC__CHUNK_HEAD 4U
#define SHMSYNC__CHUNK_TAIL 5U

/* kind of block */
#define SHMSYNC__BLOCK_FREE 0U
#define SHMSYNC__BLOCK_CLAIMED 1U
#define SHMSYNC__BLOCK_RAW 2U
#define SHMSYNC__BLOCK_OBJECT 3U
#define SHMSYNC__BLOCK_NODE 4U
#define SHMSYNC__BLOCK_FREEING 5U
#define SHMSYNC__BLOCK_BLOCKED 6U

/* phase of an object */
#define SHMSYNC__OBJECT_PENDING 0U
#define SHMSYNC__OBJECT_COMMITTED 1U
#define SHMSYNC__OBJECT_ABORTED 2U
#define SHMSYNC__OBJECT_DELETING 3U

/* state of a node */
#define SHMSYNC__NODE_FREE 0U
#define SHMSYNC__NODE_IDLE 1U
#define SHMSYNC__NODE_WAITING 2U
#define SHMSYNC__NODE_READY 3U
#define SHMSYNC__NODE_QUEUED 4U
#define SHMSYNC__NODE_ASLEEP 5U
#define SHMSYNC__NODE_PARKED 6U
#define SHMSYNC__NODE_RESOLVED 7U
#define SHMSYNC__NODE_LEFT 8U
#define SHMSYNC__NODE_SPENT 9U

/* kind of owner word */
#define SHMSYNC__OWNER_HELD 0U
#define SHMSYNC__OWNER_BIASED 1U
#define SHMSYNC__OWNER_RESERVED 2U
#define SHMSYNC__OWNER_OWNER_DEAD 3U
#define SHMSYNC__OWNER_RECOVERING 4U
#define SHMSYNC__OWNER_NOT_RECOVERABLE 5U

/* kind of state word */
#define SHMSYNC__SPIN_HELD 0U
#define SHMSYNC__SPIN_DRAINING 1U
#define SHMSYNC__SPIN_UPGRADE 2U
#define SHMSYNC__SPIN_OWNER_DEAD 3U
#define SHMSYNC__SPIN_RECOVERING 4U
#define SHMSYNC__SPIN_NOT_RECOVERABLE 5U
#define SHMSYNC__SPIN_UPGRADING 6U

/* kind of gate */
#define SHMSYNC__GATE_HELD 0U
#define SHMSYNC__GATE_CLOSED 1U
#define SHMSYNC__GATE_OWNER_DEAD 3U
#define SHMSYNC__GATE_RECOVERING 4U
#define SHMSYNC__GATE_NOT_RECOVERABLE 5U

/* Wait node */
struct shmsync__node {
	uint32_t word;
	uint32_t owner;
	uint64_t object;
	uint64_t next;
	uint64_t ready_next;
	uint64_t wanted;
	uint64_t stamp;
	uint64_t list;
	uint64_t extra;
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__node, word) == 0, "Wait node.word");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__node, owner) == 4, "Wait node.owner");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__node, object) == 8, "Wait node.object");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__node, next) == 16, "Wait node.next");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__node, ready_next) == 24, "Wait node.ready_next");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__node, wanted) == 32, "Wait node.wanted");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__node, stamp) == 40, "Wait node.stamp");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__node, list) == 48, "Wait node.list");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__node, extra) == 56, "Wait node.extra");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__node) == 64, "Wait node");

/* Mutex */
struct shmsync__mutex_words {
	uint32_t owner;
	uint8_t reserved0[60];
	uint32_t wake;
	uint32_t starving;
	uint32_t handoff;
	uint32_t policy;
	uint32_t died;
	uint32_t spin;
	uint32_t last_cpu;
	uint32_t pays;
	uint64_t hub;
	uint64_t handed;
	uint8_t reserved1[80];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__mutex_words, owner) == 0, "Mutex.owner");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__mutex_words, wake) == 64, "Mutex.wake");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__mutex_words, starving) == 68, "Mutex.starving");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__mutex_words, handoff) == 72, "Mutex.handoff");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__mutex_words, policy) == 76, "Mutex.policy");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__mutex_words, died) == 80, "Mutex.died");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__mutex_words, spin) == 84, "Mutex.spin");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__mutex_words, last_cpu) == 88, "Mutex.last_cpu");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__mutex_words, pays) == 92, "Mutex.pays");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__mutex_words, hub) == 96, "Mutex.hub");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__mutex_words, handed) == 104, "Mutex.handed");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__mutex_words) == 192, "Mutex");

/* Futex */
struct shmsync__futex_words {
	uint64_t state;
	uint32_t last_cpu;
	uint32_t spin;
	uint32_t pays;
	uint8_t reserved0[4];
	uint64_t hub;
	uint8_t reserved1[96];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__futex_words, state) == 0, "Futex.state");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__futex_words, last_cpu) == 8, "Futex.last_cpu");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__futex_words, spin) == 12, "Futex.spin");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__futex_words, pays) == 16, "Futex.pays");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__futex_words, hub) == 24, "Futex.hub");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__futex_words) == 128, "Futex");

/* Redo entry */
struct shmsync__redo_entry {
	uint64_t at;
	uint64_t to;
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__redo_entry, at) == 0, "Redo entry.at");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__redo_entry, to) == 8, "Redo entry.to");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__redo_entry) == 16, "Redo entry");

/* List of waits */
struct shmsync__list_words {
	uint64_t first;
	uint64_t last;
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__list_words, first) == 0, "List of waits.first");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__list_words, last) == 8, "List of waits.last");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__list_words) == 16, "List of waits");

/* Monitor */
struct shmsync__monitor_words {
	struct shmsync__mutex_words latch;
	uint64_t arrivals;
	uint64_t redone;
	struct shmsync__redo_entry redo[6];
	uint32_t last_cpu;
	uint32_t spin;
	uint32_t pays;
	uint8_t reserved0[4];
	uint64_t accounted;
	uint8_t reserved1[56];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__monitor_words, latch) == 0, "Monitor.latch");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__monitor_words, arrivals) == 192, "Monitor.arrivals");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__monitor_words, redone) == 200, "Monitor.redone");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__monitor_words, redo) == 208, "Monitor.redo");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__monitor_words, last_cpu) == 304, "Monitor.last_cpu");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__monitor_words, spin) == 308, "Monitor.spin");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__monitor_words, pays) == 312, "Monitor.pays");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__monitor_words, accounted) == 320, "Monitor.accounted");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__monitor_words) == 384, "Monitor");

/* Semaphore */
struct shmsync__semaphore_words {
	struct shmsync__monitor_words mon;
	uint64_t size;
	uint64_t free;
	struct shmsync__list_words queue;
	uint8_t reserved0[96];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__semaphore_words, mon) == 0, "Semaphore.mon");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__semaphore_words, size) == 384, "Semaphore.size");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__semaphore_words, free) == 392, "Semaphore.free");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__semaphore_words, queue) == 400, "Semaphore.queue");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__semaphore_words) == 512, "Semaphore");

/* Share of a semaphore */
struct shmsync__semaphore_share {
	uint64_t name;
	uint64_t permits;
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__semaphore_share, name) == 0, "Share of a semaphore.name");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__semaphore_share, permits) == 8, "Share of a semaphore.permits");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__semaphore_share) == 16, "Share of a semaphore");

/* Waitable */
struct shmsync__waitable_words {
	struct shmsync__monitor_words mon;
	uint64_t current;
	struct shmsync__list_words queue;
	uint64_t stopped;
	uint8_t reserved0[96];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__waitable_words, mon) == 0, "Waitable.mon");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__waitable_words, current) == 384, "Waitable.current");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__waitable_words, queue) == 392, "Waitable.queue");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__waitable_words, stopped) == 408, "Waitable.stopped");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__waitable_words) == 512, "Waitable");

/* Hold of a waitable */
struct shmsync__waitable_hold {
	uint64_t name;
	uint64_t extra;
	uint64_t count;
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__waitable_hold, name) == 0, "Hold of a waitable.name");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__waitable_hold, extra) == 8, "Hold of a waitable.extra");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__waitable_hold, count) == 16, "Hold of a waitable.count");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__waitable_hold) == 24, "Hold of a waitable");

/* Sequencer */
struct shmsync__sequence_words {
	struct shmsync__monitor_words mon;
	uint64_t root;
	uint64_t doomed;
	uint64_t canceled;
	uint8_t reserved0[104];
	uint64_t value;
	uint8_t reserved1[120];
	uint64_t next;
	uint32_t stopped;
	uint8_t reserved2[116];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__sequence_words, mon) == 0, "Sequencer.mon");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__sequence_words, root) == 384, "Sequencer.root");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__sequence_words, doomed) == 392, "Sequencer.doomed");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__sequence_words, canceled) == 400, "Sequencer.canceled");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__sequence_words, value) == 512, "Sequencer.value");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__sequence_words, next) == 640, "Sequencer.next");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__sequence_words, stopped) == 648, "Sequencer.stopped");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__sequence_words) == 768, "Sequencer");

/* Event */
struct shmsync__event_words {
	struct shmsync__sequence_words sequence;
	uint32_t mode;
	uint8_t reserved0[4];
	uint64_t spare;
	struct shmsync__list_words queue;
	uint8_t reserved1[96];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__event_words, sequence) == 0, "Event.sequence");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__event_words, mode) == 768, "Event.mode");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__event_words, spare) == 776, "Event.spare");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__event_words, queue) == 784, "Event.queue");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__event_words) == 896, "Event");

/* Queue */
struct shmsync__queue_words {
	struct shmsync__monitor_words mon;
	uint64_t capacity;
	uint64_t item;
	uint64_t sequence;
	uint64_t ends;
	uint64_t free;
	uint64_t out;
	uint64_t stopped;
	struct shmsync__list_words getters;
	struct shmsync__list_words putters;
	uint8_t reserved0[40];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__queue_words, mon) == 0, "Queue.mon");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__queue_words, capacity) == 384, "Queue.capacity");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__queue_words, item) == 392, "Queue.item");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__queue_words, sequence) == 400, "Queue.sequence");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__queue_words, ends) == 408, "Queue.ends");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__queue_words, free) == 416, "Queue.free");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__queue_words, out) == 424, "Queue.out");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__queue_words, stopped) == 432, "Queue.stopped");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__queue_words, getters) == 440, "Queue.getters");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__queue_words, putters) == 456, "Queue.putters");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__queue_words) == 512, "Queue");

/* Cond */
struct shmsync__cond_words {
	struct shmsync__monitor_words mon;
	uint64_t up_to;
	uint64_t flying;
	uint64_t landed;
	uint64_t batch;
	struct shmsync__list_words waiting;
	struct shmsync__list_words covered;
	struct shmsync__list_words woken;
	uint8_t reserved0[48];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__cond_words, mon) == 0, "Cond.mon");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__cond_words, up_to) == 384, "Cond.up_to");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__cond_words, flying) == 392, "Cond.flying");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__cond_words, landed) == 400, "Cond.landed");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__cond_words, batch) == 408, "Cond.batch");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__cond_words, waiting) == 416, "Cond.waiting");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__cond_words, covered) == 432, "Cond.covered");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__cond_words, woken) == 448, "Cond.woken");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__cond_words) == 512, "Cond");

/* Future */
struct shmsync__future_words {
	struct shmsync__monitor_words mon;
	uint64_t state;
	struct shmsync__list_words queue;
	uint8_t reserved0[104];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__future_words, mon) == 0, "Future.mon");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__future_words, state) == 384, "Future.state");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__future_words, queue) == 392, "Future.queue");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__future_words) == 512, "Future");

/* WaitGroup */
struct shmsync__tally_words {
	struct shmsync__monitor_words mon;
	uint64_t size;
	uint64_t others;
	uint64_t owed;
	uint64_t dead;
	uint64_t epoch;
	struct shmsync__list_words queue;
	uint8_t reserved0[72];
	uint64_t count;
	uint8_t reserved1[120];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__tally_words, mon) == 0, "WaitGroup.mon");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__tally_words, size) == 384, "WaitGroup.size");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__tally_words, others) == 392, "WaitGroup.others");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__tally_words, owed) == 400, "WaitGroup.owed");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__tally_words, dead) == 408, "WaitGroup.dead");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__tally_words, epoch) == 416, "WaitGroup.epoch");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__tally_words, queue) == 424, "WaitGroup.queue");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__tally_words, count) == 512, "WaitGroup.count");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__tally_words) == 640, "WaitGroup");

/* Share of a WaitGroup or a Latch */
struct shmsync__tally_share {
	uint64_t name;
	uint64_t epoch;
	uint64_t own;
	uint8_t reserved0[8];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__tally_share, name) == 0, "Share of a WaitGroup or a Latch.name");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__tally_share, epoch) == 8, "Share of a WaitGroup or a Latch.epoch");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__tally_share, own) == 16, "Share of a WaitGroup or a Latch.own");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__tally_share) == 32, "Share of a WaitGroup or a Latch");

/* Barrier */
struct shmsync__barrier_words {
	struct shmsync__monitor_words mon;
	uint64_t size;
	uint64_t expected;
	uint64_t pending;
	uint64_t phase;
	uint64_t completer;
	uint64_t broken;
	uint64_t dead;
	uint64_t voided;
	struct shmsync__list_words queue;
	uint8_t reserved0[48];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_words, mon) == 0, "Barrier.mon");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_words, size) == 384, "Barrier.size");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_words, expected) == 392, "Barrier.expected");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_words, pending) == 400, "Barrier.pending");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_words, phase) == 408, "Barrier.phase");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_words, completer) == 416, "Barrier.completer");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_words, broken) == 424, "Barrier.broken");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_words, dead) == 432, "Barrier.dead");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_words, voided) == 440, "Barrier.voided");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_words, queue) == 448, "Barrier.queue");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__barrier_words) == 512, "Barrier");

/* Share of a Barrier */
struct shmsync__barrier_share {
	uint64_t name;
	uint64_t phase;
	uint64_t parties;
	uint64_t left;
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_share, name) == 0, "Share of a Barrier.name");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_share, phase) == 8, "Share of a Barrier.phase");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_share, parties) == 16, "Share of a Barrier.parties");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__barrier_share, left) == 24, "Share of a Barrier.left");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__barrier_share) == 32, "Share of a Barrier");

/* Once */
struct shmsync__once_words {
	struct shmsync__monitor_words mon;
	uint64_t runner;
	struct shmsync__list_words queue;
	uint8_t reserved0[40];
	uint32_t done;
	uint8_t reserved1[60];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__once_words, mon) == 0, "Once.mon");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__once_words, runner) == 384, "Once.runner");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__once_words, queue) == 392, "Once.queue");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__once_words, done) == 448, "Once.done");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__once_words) == 512, "Once");

/* FairMutex */
struct shmsync__fairmutex_words {
	struct shmsync__monitor_words mon;
	uint64_t owner;
	uint32_t policy;
	uint32_t died;
	struct shmsync__list_words queue;
	uint8_t reserved0[96];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__fairmutex_words, mon) == 0, "FairMutex.mon");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__fairmutex_words, owner) == 384, "FairMutex.owner");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__fairmutex_words, policy) == 392, "FairMutex.policy");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__fairmutex_words, died) == 396, "FairMutex.died");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__fairmutex_words, queue) == 400, "FairMutex.queue");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__fairmutex_words) == 512, "FairMutex");

/* MultiLock */
struct shmsync__multilock_head {
	uint32_t policy;
	uint32_t buckets;
	uint8_t reserved0[120];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__multilock_head, policy) == 0, "MultiLock.policy");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__multilock_head, buckets) == 4, "MultiLock.buckets");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__multilock_head) == 128, "MultiLock");

/* Bucket of keys */
struct shmsync__multilock_bucket {
	struct shmsync__monitor_words mon;
	uint64_t spilled;
	uint64_t entries[15];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__multilock_bucket, mon) == 0, "Bucket of keys.mon");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__multilock_bucket, spilled) == 384, "Bucket of keys.spilled");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__multilock_bucket, entries) == 392, "Bucket of keys.entries");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__multilock_bucket) == 512, "Bucket of keys");

/* RWMutex */
struct shmsync__rwmutex_words {
	struct shmsync__mutex_words writers;
	uint8_t reserved0[64];
	uint32_t gate;
	uint32_t high;
	uint32_t policy;
	uint8_t reserved1[116];
	uint32_t wake_readers;
	uint32_t wake_writer;
	uint32_t died;
	uint32_t last_cpu;
	uint32_t pays;
	uint32_t pays_writer;
	uint64_t hub_readers;
	uint64_t hub_writer;
	uint8_t reserved2[88];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, writers) == 0, "RWMutex.writers");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, gate) == 256, "RWMutex.gate");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, high) == 260, "RWMutex.high");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, policy) == 264, "RWMutex.policy");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, wake_readers) == 384, "RWMutex.wake_readers");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, wake_writer) == 388, "RWMutex.wake_writer");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, died) == 392, "RWMutex.died");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, last_cpu) == 396, "RWMutex.last_cpu");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, pays) == 400, "RWMutex.pays");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, pays_writer) == 404, "RWMutex.pays_writer");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, hub_readers) == 408, "RWMutex.hub_readers");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_words, hub_writer) == 416, "RWMutex.hub_writer");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__rwmutex_words) == 512, "RWMutex");

/* Line of a slot */
struct shmsync__rwmutex_line {
	uint64_t state;
	uint8_t reserved0[120];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__rwmutex_line, state) == 0, "Line of a slot.state");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__rwmutex_line) == 128, "Line of a slot");

/* SpinLock */
struct shmsync__spin_words {
	uint32_t state;
	uint32_t drain;
	uint32_t top;
	uint8_t reserved0[52];
	uint32_t wake;
	uint32_t gate;
	uint32_t policy;
	uint32_t died;
	uint32_t spin;
	uint32_t last_cpu;
	uint32_t pays;
	uint8_t reserved1[4];
	uint64_t hub;
	uint64_t gate_hub;
	uint64_t drain_hub;
	uint8_t reserved2[8];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, state) == 0, "SpinLock.state");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, drain) == 4, "SpinLock.drain");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, top) == 8, "SpinLock.top");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, wake) == 64, "SpinLock.wake");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, gate) == 68, "SpinLock.gate");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, policy) == 72, "SpinLock.policy");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, died) == 76, "SpinLock.died");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, spin) == 80, "SpinLock.spin");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, last_cpu) == 84, "SpinLock.last_cpu");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, pays) == 88, "SpinLock.pays");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, hub) == 96, "SpinLock.hub");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, gate_hub) == 104, "SpinLock.gate_hub");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__spin_words, drain_hub) == 112, "SpinLock.drain_hub");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__spin_words) == 128, "SpinLock");

/* SignalWaker */
struct shmsync__signal_words {
	uint32_t config;
	uint32_t rows;
	uint8_t reserved0[120];
	uint64_t summary;
	uint8_t reserved1[120];
	uint64_t permits;
	uint8_t reserved2[120];
	uint32_t wake;
	uint32_t last_cpu;
	uint32_t pays;
	uint32_t spin;
	uint64_t hub;
	uint8_t reserved3[104];
	uint64_t status;
	uint8_t reserved4[120];
	uint64_t partition;
	uint8_t reserved5[120];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_words, config) == 0, "SignalWaker.config");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_words, rows) == 4, "SignalWaker.rows");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_words, summary) == 128, "SignalWaker.summary");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_words, permits) == 256, "SignalWaker.permits");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_words, wake) == 384, "SignalWaker.wake");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_words, last_cpu) == 388, "SignalWaker.last_cpu");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_words, pays) == 392, "SignalWaker.pays");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_words, spin) == 396, "SignalWaker.spin");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_words, hub) == 400, "SignalWaker.hub");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_words, status) == 512, "SignalWaker.status");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_words, partition) == 640, "SignalWaker.partition");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__signal_words) == 768, "SignalWaker");

/* Signal line */
struct shmsync__signal_line {
	uint64_t bits;
	uint8_t reserved0[56];
	uint64_t tasks;
	uint8_t reserved1[56];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_line, bits) == 0, "Signal line.bits");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_line, tasks) == 64, "Signal line.tasks");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__signal_line) == 128, "Signal line");

/* Gate */
struct shmsync__signal_gate {
	uint64_t word;
	uint32_t task;
	uint8_t reserved0[116];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_gate, word) == 0, "Gate.word");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_gate, task) == 8, "Gate.task");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__signal_gate) == 128, "Gate");

/* Participant row */
struct shmsync__signal_row {
	uint64_t count;
	uint8_t reserved0[120];
	uint64_t stats[16];
};
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_row, count) == 0, "Participant row.count");
SHMSYNC__STATIC_ASSERT(offsetof(struct shmsync__signal_row, stats) == 128, "Participant row.stats");
SHMSYNC__STATIC_ASSERT(sizeof(struct shmsync__signal_row) == 256, "Participant row");
