/* Made from docs/abi.md by internal/abigen; do not edit: go test ./internal/abigen -update */

/* Kinds of objects, and the version of each kind's layout */
#define SHMI_KIND_MUTEX UINT32_C(0x5854554d) /* MUTX */
#define SHMI_VERSION_MUTEX 1
#define SHMI_KIND_COHORT_MUTEX UINT32_C(0x4d484f43) /* COHM */
#define SHMI_VERSION_COHORT_MUTEX 2
#define SHMI_KIND_FUTEX UINT32_C(0x58545546) /* FUTX */
#define SHMI_VERSION_FUTEX 1
#define SHMI_KIND_SIGNAL_WAKER UINT32_C(0x57474953) /* SIGW */
#define SHMI_VERSION_SIGNAL_WAKER 1
#define SHMI_KIND_SPIN_LOCK UINT32_C(0x4e495053) /* SPIN */
#define SHMI_VERSION_SPIN_LOCK 1
#define SHMI_KIND_RWSPIN_LOCK UINT32_C(0x50535752) /* RWSP */
#define SHMI_VERSION_RWSPIN_LOCK 2
#define SHMI_KIND_RWMUTEX UINT32_C(0x584d5752) /* RWMX */
#define SHMI_VERSION_RWMUTEX 2
#define SHMI_KIND_SEMAPHORE UINT32_C(0x414d4553) /* SEMA */
#define SHMI_VERSION_SEMAPHORE 4
#define SHMI_KIND_WAITABLE UINT32_C(0x54494157) /* WAIT */
#define SHMI_VERSION_WAITABLE 5
#define SHMI_KIND_SEQUENCER UINT32_C(0x52514553) /* SEQR */
#define SHMI_VERSION_SEQUENCER 3
#define SHMI_KIND_EVENT UINT32_C(0x544e5645) /* EVNT */
#define SHMI_VERSION_EVENT 4
#define SHMI_KIND_WAIT_GROUP UINT32_C(0x50524757) /* WGRP */
#define SHMI_VERSION_WAIT_GROUP 4
#define SHMI_KIND_LATCH UINT32_C(0x4843544c) /* LTCH */
#define SHMI_VERSION_LATCH 4
#define SHMI_KIND_BARRIER UINT32_C(0x52524142) /* BARR */
#define SHMI_VERSION_BARRIER 3
#define SHMI_KIND_ONCE UINT32_C(0x45434e4f) /* ONCE */
#define SHMI_VERSION_ONCE 2
#define SHMI_KIND_FAIR_MUTEX UINT32_C(0x52494146) /* FAIR */
#define SHMI_VERSION_FAIR_MUTEX 3
#define SHMI_KIND_MULTI_LOCK UINT32_C(0x544c554d) /* MULT */
#define SHMI_VERSION_MULTI_LOCK 3
#define SHMI_KIND_COND UINT32_C(0x444e4f43) /* COND */
#define SHMI_VERSION_COND 2
#define SHMI_KIND_FUTURE UINT32_C(0x52545546) /* FUTR */
#define SHMI_VERSION_FUTURE 2
#define SHMI_KIND_QUEUE UINT32_C(0x55455551) /* QUEU */
#define SHMI_VERSION_QUEUE 3
#define SHMI_KIND_SYNCHRONIZED UINT32_C(0x434e5953) /* SYNC */
#define SHMI_VERSION_SYNCHRONIZED 1

/* RWMutex gate: fields of the word */
#define SHMI_GATE_NAME_SHIFT 0
#define SHMI_GATE_NAME_MASK UINT64_C(0x1fffffff)
#define SHMI_GATE_KIND_SHIFT 29
#define SHMI_GATE_KIND_MASK UINT64_C(0xe0000000)

/* Reader word: fields of the word */
#define SHMI_READER_GENERATION_SHIFT 0
#define SHMI_READER_GENERATION_MASK UINT64_C(0x3ffff)
#define SHMI_READER_WAITING_SHIFT 18
#define SHMI_READER_WAITING_MASK UINT64_C(0x1fffffc0000)
#define SHMI_READER_READING_SHIFT 41
#define SHMI_READER_READING_MASK UINT64_C(0xfffffe0000000000)

/* SpinLock: fields of the word */
#define SHMI_SPIN_NAME_SHIFT 0
#define SHMI_SPIN_NAME_MASK UINT64_C(0x1fffffff)
#define SHMI_SPIN_KIND_SHIFT 29
#define SHMI_SPIN_KIND_MASK UINT64_C(0xe0000000)

/* Cell of a Sequencer: fields of the word */
#define SHMI_TOKEN_CELL_SEQUENCE_SHIFT 0
#define SHMI_TOKEN_CELL_SEQUENCE_MASK UINT64_C(0xffffffff)
#define SHMI_TOKEN_CELL_ANNOUNCED_SHIFT 32
#define SHMI_TOKEN_CELL_ANNOUNCED_MASK UINT64_C(0x100000000)
#define SHMI_TOKEN_CELL_NEXT_SHIFT 33
#define SHMI_TOKEN_CELL_NEXT_MASK UINT64_C(0xfffffffe00000000)

/* Event: fields of the word */
#define SHMI_EVENT_MODE_SHIFT 33
#define SHMI_EVENT_MODE_MASK UINT64_C(0x600000000)

/* Auto-reset Event: fields of the word */
#define SHMI_AUTO_EVENT_VERSION_SHIFT 0
#define SHMI_AUTO_EVENT_VERSION_MASK UINT64_C(0xffffffff)
#define SHMI_AUTO_EVENT_ANNOUNCED_SHIFT 32
#define SHMI_AUTO_EVENT_ANNOUNCED_MASK UINT64_C(0x100000000)
#define SHMI_AUTO_EVENT_TOKENS_SHIFT 33
#define SHMI_AUTO_EVENT_TOKENS_MASK UINT64_C(0x1ffffe00000000)
#define SHMI_AUTO_EVENT_SLOT_SHIFT 53
#define SHMI_AUTO_EVENT_SLOT_MASK UINT64_C(0xffe0000000000000)

/* Future: fields of the word */
#define SHMI_FUTURE_ABANDONED_SHIFT 33
#define SHMI_FUTURE_ABANDONED_MASK UINT64_C(0x200000000)
#define SHMI_FUTURE_PRODUCER_SHIFT 35
#define SHMI_FUTURE_PRODUCER_MASK UINT64_C(0xfffffff800000000)

/* Result of a Future: fields of the word */
#define SHMI_FUTURE_RESULT_VALUE_SHIFT 0
#define SHMI_FUTURE_RESULT_VALUE_MASK UINT64_C(0xffffffff)
#define SHMI_FUTURE_RESULT_ABANDONED_SHIFT 32
#define SHMI_FUTURE_RESULT_ABANDONED_MASK UINT64_C(0x100000000)
#define SHMI_FUTURE_RESULT_DECIDED_SHIFT 33
#define SHMI_FUTURE_RESULT_DECIDED_MASK UINT64_C(0x200000000)
#define SHMI_FUTURE_RESULT_LAP_SHIFT 38
#define SHMI_FUTURE_RESULT_LAP_MASK UINT64_C(0xffffffc000000000)

/* SignalWaker: fields of the word */
#define SHMI_SIGNAL_SIGNALS_SHIFT 0
#define SHMI_SIGNAL_SIGNALS_MASK UINT64_C(0xff)
#define SHMI_SIGNAL_COUNT_SHIFT 8
#define SHMI_SIGNAL_COUNT_MASK UINT64_C(0x100)

/* Signal status: fields of the word */
#define SHMI_SIGNAL_STATUS_YIELD_SHIFT 0
#define SHMI_SIGNAL_STATUS_YIELD_MASK UINT64_C(0x1)
#define SHMI_SIGNAL_STATUS_TASKS_SHIFT 1
#define SHMI_SIGNAL_STATUS_TASKS_MASK UINT64_C(0x2)

/* Gate: fields of the word */
#define SHMI_SIGNAL_GATE_EXECUTOR_SHIFT 0
#define SHMI_SIGNAL_GATE_EXECUTOR_MASK UINT64_C(0x1fffffff)
#define SHMI_SIGNAL_GATE_SCHEDULED_SHIFT 29
#define SHMI_SIGNAL_GATE_SCHEDULED_MASK UINT64_C(0x20000000)
#define SHMI_SIGNAL_GATE_EXECUTING_SHIFT 30
#define SHMI_SIGNAL_GATE_EXECUTING_MASK UINT64_C(0x40000000)
#define SHMI_SIGNAL_GATE_EPOCH_SHIFT 32
#define SHMI_SIGNAL_GATE_EPOCH_MASK UINT64_C(0xffffffff00000000)

/* Participant row: fields of the word */
#define SHMI_SIGNAL_ROW_NAME_SHIFT 0
#define SHMI_SIGNAL_ROW_NAME_MASK UINT64_C(0x1fffffff)
#define SHMI_SIGNAL_ROW_WORKERS_SHIFT 29
#define SHMI_SIGNAL_ROW_WORKERS_MASK UINT64_C(0xfffe0000000)
#define SHMI_SIGNAL_ROW_SLEEPERS_SHIFT 44
#define SHMI_SIGNAL_ROW_SLEEPERS_MASK UINT64_C(0xfffff00000000000)

/* kind of gate */
#define SHMI_GATE_HELD 0U
#define SHMI_GATE_CLOSED 1U
#define SHMI_GATE_OWNER_DEAD 3U
#define SHMI_GATE_RECOVERING 4U
#define SHMI_GATE_NOT_RECOVERABLE 5U

/* kind of state word */
#define SHMI_SPIN_HELD 0U
#define SHMI_SPIN_DRAINING 1U
#define SHMI_SPIN_UPGRADE 2U
#define SHMI_SPIN_OWNER_DEAD 3U
#define SHMI_SPIN_RECOVERING 4U
#define SHMI_SPIN_NOT_RECOVERABLE 5U
#define SHMI_SPIN_UPGRADING 6U

/* Semaphore */
typedef struct shmi_semaphore_words {
    uint64_t commit;
    uint64_t free;
    uint64_t freeHigh;
    uint64_t first;
    uint64_t last;
    uint64_t opened;
    uint64_t size;
    uint64_t releaser;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint32_t wake;
    uint64_t poller;
    uint8_t pad0_[40];
} shmi_semaphore_words;
SHMI_ASSERT(offsetof(shmi_semaphore_words, commit) == 0, "semaphore_words.commit");
SHMI_ASSERT(offsetof(shmi_semaphore_words, free) == 8, "semaphore_words.free");
SHMI_ASSERT(offsetof(shmi_semaphore_words, freeHigh) == 16, "semaphore_words.freeHigh");
SHMI_ASSERT(offsetof(shmi_semaphore_words, first) == 24, "semaphore_words.first");
SHMI_ASSERT(offsetof(shmi_semaphore_words, last) == 32, "semaphore_words.last");
SHMI_ASSERT(offsetof(shmi_semaphore_words, opened) == 40, "semaphore_words.opened");
SHMI_ASSERT(offsetof(shmi_semaphore_words, size) == 48, "semaphore_words.size");
SHMI_ASSERT(offsetof(shmi_semaphore_words, releaser) == 56, "semaphore_words.releaser");
SHMI_ASSERT(offsetof(shmi_semaphore_words, lastCPU) == 64, "semaphore_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_semaphore_words, spin) == 68, "semaphore_words.spin");
SHMI_ASSERT(offsetof(shmi_semaphore_words, pays) == 72, "semaphore_words.pays");
SHMI_ASSERT(offsetof(shmi_semaphore_words, wake) == 76, "semaphore_words.wake");
SHMI_ASSERT(offsetof(shmi_semaphore_words, poller) == 80, "semaphore_words.poller");
SHMI_ASSERT(sizeof(shmi_semaphore_words) == 128, "semaphore_words");

/* Share of a semaphore */
typedef struct shmi_semaphore_share {
    uint64_t name;
    uint64_t permits;
    uint64_t permitsHigh;
    uint64_t fast;
    uint64_t accepted;
    uint8_t pad0_[24];
} shmi_semaphore_share;
SHMI_ASSERT(offsetof(shmi_semaphore_share, name) == 0, "semaphore_share.name");
SHMI_ASSERT(offsetof(shmi_semaphore_share, permits) == 8, "semaphore_share.permits");
SHMI_ASSERT(offsetof(shmi_semaphore_share, permitsHigh) == 16, "semaphore_share.permitsHigh");
SHMI_ASSERT(offsetof(shmi_semaphore_share, fast) == 24, "semaphore_share.fast");
SHMI_ASSERT(offsetof(shmi_semaphore_share, accepted) == 32, "semaphore_share.accepted");
SHMI_ASSERT(sizeof(shmi_semaphore_share) == 64, "semaphore_share");

/* Slot record of a Semaphore */
typedef struct shmi_semaphore_record {
    uint8_t pad0_[32];
    uint64_t head;
    uint64_t kinds;
    uint8_t pad1_[16];
    shmi_semaphore_share share;
    uint64_t entries[16];
} shmi_semaphore_record;
SHMI_ASSERT(offsetof(shmi_semaphore_record, head) == 32, "semaphore_record.head");
SHMI_ASSERT(offsetof(shmi_semaphore_record, kinds) == 40, "semaphore_record.kinds");
SHMI_ASSERT(offsetof(shmi_semaphore_record, share) == 64, "semaphore_record.share");
SHMI_ASSERT(offsetof(shmi_semaphore_record, entries) == 128, "semaphore_record.entries");
SHMI_ASSERT(sizeof(shmi_semaphore_record) == 256, "semaphore_record");

/* Cell of a Sequencer */
typedef struct shmi_token_cell_words {
    uint64_t state;
    uint64_t poller;
} shmi_token_cell_words;
SHMI_ASSERT(offsetof(shmi_token_cell_words, state) == 0, "token_cell_words.state");
SHMI_ASSERT(offsetof(shmi_token_cell_words, poller) == 8, "token_cell_words.poller");
SHMI_ASSERT(sizeof(shmi_token_cell_words) == 16, "token_cell_words");

/* Sequencer */
typedef struct shmi_sequencer_words {
    uint64_t value;
    uint8_t pad0_[56];
    uint64_t turns;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint8_t pad1_[44];
    shmi_token_cell_words cells[16];
} shmi_sequencer_words;
SHMI_ASSERT(offsetof(shmi_sequencer_words, value) == 0, "sequencer_words.value");
SHMI_ASSERT(offsetof(shmi_sequencer_words, turns) == 64, "sequencer_words.turns");
SHMI_ASSERT(offsetof(shmi_sequencer_words, lastCPU) == 72, "sequencer_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_sequencer_words, spin) == 76, "sequencer_words.spin");
SHMI_ASSERT(offsetof(shmi_sequencer_words, pays) == 80, "sequencer_words.pays");
SHMI_ASSERT(offsetof(shmi_sequencer_words, cells) == 128, "sequencer_words.cells");
SHMI_ASSERT(sizeof(shmi_sequencer_words) == 384, "sequencer_words");

/* An eventcount */
typedef struct shmi_eventcount_words {
    uint64_t state;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint8_t pad0_[4];
    uint64_t poller;
    uint8_t pad1_[32];
    uint64_t counts[8];
} shmi_eventcount_words;
SHMI_ASSERT(offsetof(shmi_eventcount_words, state) == 0, "eventcount_words.state");
SHMI_ASSERT(offsetof(shmi_eventcount_words, lastCPU) == 8, "eventcount_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_eventcount_words, spin) == 12, "eventcount_words.spin");
SHMI_ASSERT(offsetof(shmi_eventcount_words, pays) == 16, "eventcount_words.pays");
SHMI_ASSERT(offsetof(shmi_eventcount_words, poller) == 24, "eventcount_words.poller");
SHMI_ASSERT(offsetof(shmi_eventcount_words, counts) == 64, "eventcount_words.counts");
SHMI_ASSERT(sizeof(shmi_eventcount_words) == 128, "eventcount_words");

/* Event */
typedef struct shmi_event_words {
    shmi_eventcount_words count;
} shmi_event_words;
SHMI_ASSERT(offsetof(shmi_event_words, count) == 0, "event_words.count");
SHMI_ASSERT(sizeof(shmi_event_words) == 128, "event_words");

/* Auto-reset Event */
typedef struct shmi_auto_event_words {
    uint64_t state;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint32_t mode;
    uint64_t poller;
    uint8_t pad0_[32];
    uint64_t counts[8];
} shmi_auto_event_words;
SHMI_ASSERT(offsetof(shmi_auto_event_words, state) == 0, "auto_event_words.state");
SHMI_ASSERT(offsetof(shmi_auto_event_words, lastCPU) == 8, "auto_event_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_auto_event_words, spin) == 12, "auto_event_words.spin");
SHMI_ASSERT(offsetof(shmi_auto_event_words, pays) == 16, "auto_event_words.pays");
SHMI_ASSERT(offsetof(shmi_auto_event_words, mode) == 20, "auto_event_words.mode");
SHMI_ASSERT(offsetof(shmi_auto_event_words, poller) == 24, "auto_event_words.poller");
SHMI_ASSERT(offsetof(shmi_auto_event_words, counts) == 64, "auto_event_words.counts");
SHMI_ASSERT(sizeof(shmi_auto_event_words) == 128, "auto_event_words");

/* Share of an auto-reset Event */
typedef struct shmi_event_record {
    uint8_t pad0_[64];
    uint64_t name;
    uint64_t waits;
    uint8_t pad1_[48];
} shmi_event_record;
SHMI_ASSERT(offsetof(shmi_event_record, name) == 64, "event_record.name");
SHMI_ASSERT(offsetof(shmi_event_record, waits) == 72, "event_record.waits");
SHMI_ASSERT(sizeof(shmi_event_record) == 128, "event_record");

/* Side of a queue */
typedef struct shmi_queue_side_words {
    uint32_t wake;
    uint32_t lastCPU;
    uint32_t pays;
    uint8_t pad0_[4];
    uint64_t poller;
} shmi_queue_side_words;
SHMI_ASSERT(offsetof(shmi_queue_side_words, wake) == 0, "queue_side_words.wake");
SHMI_ASSERT(offsetof(shmi_queue_side_words, lastCPU) == 4, "queue_side_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_queue_side_words, pays) == 8, "queue_side_words.pays");
SHMI_ASSERT(offsetof(shmi_queue_side_words, poller) == 16, "queue_side_words.poller");
SHMI_ASSERT(sizeof(shmi_queue_side_words) == 24, "queue_side_words");

/* Queue */
typedef struct shmi_queue_words {
    uint64_t flags;
    uint64_t returned;
    shmi_queue_side_words items;
    shmi_queue_side_words room;
    uint64_t capacity;
    uint64_t item;
    uint64_t used;
    uint32_t spin;
    uint8_t pad0_[4];
    uint64_t returning[4];
    uint64_t counts[8];
    uint64_t tail;
    uint8_t pad1_[56];
    uint64_t head;
    uint8_t pad2_[56];
} shmi_queue_words;
SHMI_ASSERT(offsetof(shmi_queue_words, flags) == 0, "queue_words.flags");
SHMI_ASSERT(offsetof(shmi_queue_words, returned) == 8, "queue_words.returned");
SHMI_ASSERT(offsetof(shmi_queue_words, items) == 16, "queue_words.items");
SHMI_ASSERT(offsetof(shmi_queue_words, room) == 40, "queue_words.room");
SHMI_ASSERT(offsetof(shmi_queue_words, capacity) == 64, "queue_words.capacity");
SHMI_ASSERT(offsetof(shmi_queue_words, item) == 72, "queue_words.item");
SHMI_ASSERT(offsetof(shmi_queue_words, used) == 80, "queue_words.used");
SHMI_ASSERT(offsetof(shmi_queue_words, spin) == 88, "queue_words.spin");
SHMI_ASSERT(offsetof(shmi_queue_words, returning) == 96, "queue_words.returning");
SHMI_ASSERT(offsetof(shmi_queue_words, counts) == 128, "queue_words.counts");
SHMI_ASSERT(offsetof(shmi_queue_words, tail) == 192, "queue_words.tail");
SHMI_ASSERT(offsetof(shmi_queue_words, head) == 256, "queue_words.head");
SHMI_ASSERT(sizeof(shmi_queue_words) == 320, "queue_words");

/* Cond */
typedef struct shmi_cond_words {
    uint64_t commit;
    uint64_t first;
    uint64_t last;
    uint64_t boundary;
    uint64_t flying;
    uint64_t batch;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint32_t wake;
    uint64_t poller;
    uint8_t pad0_[56];
} shmi_cond_words;
SHMI_ASSERT(offsetof(shmi_cond_words, commit) == 0, "cond_words.commit");
SHMI_ASSERT(offsetof(shmi_cond_words, first) == 8, "cond_words.first");
SHMI_ASSERT(offsetof(shmi_cond_words, last) == 16, "cond_words.last");
SHMI_ASSERT(offsetof(shmi_cond_words, boundary) == 24, "cond_words.boundary");
SHMI_ASSERT(offsetof(shmi_cond_words, flying) == 32, "cond_words.flying");
SHMI_ASSERT(offsetof(shmi_cond_words, batch) == 40, "cond_words.batch");
SHMI_ASSERT(offsetof(shmi_cond_words, lastCPU) == 48, "cond_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_cond_words, spin) == 52, "cond_words.spin");
SHMI_ASSERT(offsetof(shmi_cond_words, pays) == 56, "cond_words.pays");
SHMI_ASSERT(offsetof(shmi_cond_words, wake) == 60, "cond_words.wake");
SHMI_ASSERT(offsetof(shmi_cond_words, poller) == 64, "cond_words.poller");
SHMI_ASSERT(sizeof(shmi_cond_words) == 128, "cond_words");

/* Future */
typedef struct shmi_future_words {
    shmi_eventcount_words count;
    uint64_t results[32];
} shmi_future_words;
SHMI_ASSERT(offsetof(shmi_future_words, count) == 0, "future_words.count");
SHMI_ASSERT(offsetof(shmi_future_words, results) == 128, "future_words.results");
SHMI_ASSERT(sizeof(shmi_future_words) == 384, "future_words");

/* Synchronized */
typedef struct shmi_synchronized_words {
    shmi_mutex_words lock;
    uint64_t current;
    uint8_t pad0_[56];
} shmi_synchronized_words;
SHMI_ASSERT(offsetof(shmi_synchronized_words, lock) == 0, "synchronized_words.lock");
SHMI_ASSERT(offsetof(shmi_synchronized_words, current) == 192, "synchronized_words.current");
SHMI_ASSERT(sizeof(shmi_synchronized_words) == 256, "synchronized_words");

/* WaitGroup */
typedef struct shmi_counter_words {
    uint64_t commit;
    uint64_t size;
    uint64_t tickets;
    uint64_t count;
    uint64_t period;
    uint64_t owed;
    uint64_t dead;
    uint8_t pad0_[8];
    uint64_t events;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint8_t pad1_[4];
    uint64_t poller;
    uint8_t pad2_[32];
} shmi_counter_words;
SHMI_ASSERT(offsetof(shmi_counter_words, commit) == 0, "counter_words.commit");
SHMI_ASSERT(offsetof(shmi_counter_words, size) == 8, "counter_words.size");
SHMI_ASSERT(offsetof(shmi_counter_words, tickets) == 16, "counter_words.tickets");
SHMI_ASSERT(offsetof(shmi_counter_words, count) == 24, "counter_words.count");
SHMI_ASSERT(offsetof(shmi_counter_words, period) == 32, "counter_words.period");
SHMI_ASSERT(offsetof(shmi_counter_words, owed) == 40, "counter_words.owed");
SHMI_ASSERT(offsetof(shmi_counter_words, dead) == 48, "counter_words.dead");
SHMI_ASSERT(offsetof(shmi_counter_words, events) == 64, "counter_words.events");
SHMI_ASSERT(offsetof(shmi_counter_words, lastCPU) == 72, "counter_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_counter_words, spin) == 76, "counter_words.spin");
SHMI_ASSERT(offsetof(shmi_counter_words, pays) == 80, "counter_words.pays");
SHMI_ASSERT(offsetof(shmi_counter_words, poller) == 88, "counter_words.poller");
SHMI_ASSERT(sizeof(shmi_counter_words) == 128, "counter_words");

/* Slot record of a WaitGroup or a Latch */
typedef struct shmi_counter_slot {
    uint8_t pad0_[32];
    uint64_t name;
    uint64_t period;
    uint64_t own;
    uint64_t claimed;
    uint64_t head;
    uint64_t entries[7];
} shmi_counter_slot;
SHMI_ASSERT(offsetof(shmi_counter_slot, name) == 32, "counter_slot.name");
SHMI_ASSERT(offsetof(shmi_counter_slot, period) == 40, "counter_slot.period");
SHMI_ASSERT(offsetof(shmi_counter_slot, own) == 48, "counter_slot.own");
SHMI_ASSERT(offsetof(shmi_counter_slot, claimed) == 56, "counter_slot.claimed");
SHMI_ASSERT(offsetof(shmi_counter_slot, head) == 64, "counter_slot.head");
SHMI_ASSERT(offsetof(shmi_counter_slot, entries) == 72, "counter_slot.entries");
SHMI_ASSERT(sizeof(shmi_counter_slot) == 128, "counter_slot");

/* Barrier */
typedef struct shmi_barrier_words {
    uint64_t commit;
    uint64_t tickets;
    uint64_t phase;
    uint64_t era;
    uint64_t pending;
    uint64_t expected;
    uint64_t completer;
    uint64_t broken;
    uint64_t breaks[32];
    uint64_t events;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint32_t size;
    uint64_t poller;
    uint64_t lost;
    uint64_t skipped;
    uint64_t reset;
    uint64_t resetEra;
} shmi_barrier_words;
SHMI_ASSERT(offsetof(shmi_barrier_words, commit) == 0, "barrier_words.commit");
SHMI_ASSERT(offsetof(shmi_barrier_words, tickets) == 8, "barrier_words.tickets");
SHMI_ASSERT(offsetof(shmi_barrier_words, phase) == 16, "barrier_words.phase");
SHMI_ASSERT(offsetof(shmi_barrier_words, era) == 24, "barrier_words.era");
SHMI_ASSERT(offsetof(shmi_barrier_words, pending) == 32, "barrier_words.pending");
SHMI_ASSERT(offsetof(shmi_barrier_words, expected) == 40, "barrier_words.expected");
SHMI_ASSERT(offsetof(shmi_barrier_words, completer) == 48, "barrier_words.completer");
SHMI_ASSERT(offsetof(shmi_barrier_words, broken) == 56, "barrier_words.broken");
SHMI_ASSERT(offsetof(shmi_barrier_words, breaks) == 64, "barrier_words.breaks");
SHMI_ASSERT(offsetof(shmi_barrier_words, events) == 320, "barrier_words.events");
SHMI_ASSERT(offsetof(shmi_barrier_words, lastCPU) == 328, "barrier_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_barrier_words, spin) == 332, "barrier_words.spin");
SHMI_ASSERT(offsetof(shmi_barrier_words, pays) == 336, "barrier_words.pays");
SHMI_ASSERT(offsetof(shmi_barrier_words, size) == 340, "barrier_words.size");
SHMI_ASSERT(offsetof(shmi_barrier_words, poller) == 344, "barrier_words.poller");
SHMI_ASSERT(offsetof(shmi_barrier_words, lost) == 352, "barrier_words.lost");
SHMI_ASSERT(offsetof(shmi_barrier_words, skipped) == 360, "barrier_words.skipped");
SHMI_ASSERT(offsetof(shmi_barrier_words, reset) == 368, "barrier_words.reset");
SHMI_ASSERT(offsetof(shmi_barrier_words, resetEra) == 376, "barrier_words.resetEra");
SHMI_ASSERT(sizeof(shmi_barrier_words) == 384, "barrier_words");

/* Slot record of a Barrier */
typedef struct shmi_barrier_slot {
    uint8_t pad0_[32];
    uint64_t name;
    uint64_t phase;
    uint64_t era;
    uint64_t parties;
    uint64_t left;
    uint64_t gone;
    uint64_t goneIn;
    uint64_t head;
    uint64_t entries[17];
} shmi_barrier_slot;
SHMI_ASSERT(offsetof(shmi_barrier_slot, name) == 32, "barrier_slot.name");
SHMI_ASSERT(offsetof(shmi_barrier_slot, phase) == 40, "barrier_slot.phase");
SHMI_ASSERT(offsetof(shmi_barrier_slot, era) == 48, "barrier_slot.era");
SHMI_ASSERT(offsetof(shmi_barrier_slot, parties) == 56, "barrier_slot.parties");
SHMI_ASSERT(offsetof(shmi_barrier_slot, left) == 64, "barrier_slot.left");
SHMI_ASSERT(offsetof(shmi_barrier_slot, gone) == 72, "barrier_slot.gone");
SHMI_ASSERT(offsetof(shmi_barrier_slot, goneIn) == 80, "barrier_slot.goneIn");
SHMI_ASSERT(offsetof(shmi_barrier_slot, head) == 88, "barrier_slot.head");
SHMI_ASSERT(offsetof(shmi_barrier_slot, entries) == 96, "barrier_slot.entries");
SHMI_ASSERT(sizeof(shmi_barrier_slot) == 232, "barrier_slot");

/* Once */
typedef struct shmi_once_words {
    uint64_t state;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint8_t pad0_[4];
    uint64_t poller;
    uint8_t pad1_[32];
    uint64_t counts[8];
} shmi_once_words;
SHMI_ASSERT(offsetof(shmi_once_words, state) == 0, "once_words.state");
SHMI_ASSERT(offsetof(shmi_once_words, lastCPU) == 8, "once_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_once_words, spin) == 12, "once_words.spin");
SHMI_ASSERT(offsetof(shmi_once_words, pays) == 16, "once_words.pays");
SHMI_ASSERT(offsetof(shmi_once_words, poller) == 24, "once_words.poller");
SHMI_ASSERT(offsetof(shmi_once_words, counts) == 64, "once_words.counts");
SHMI_ASSERT(sizeof(shmi_once_words) == 128, "once_words");

/* FairMutex */
typedef struct shmi_fairmutex_words {
    uint64_t commit;
    uint64_t owner;
    uint64_t accepted;
    uint64_t first;
    uint64_t last;
    uint64_t died;
    uint32_t policy;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint32_t wake;
    uint8_t pad0_[4];
    uint64_t poller;
    uint8_t pad1_[48];
} shmi_fairmutex_words;
SHMI_ASSERT(offsetof(shmi_fairmutex_words, commit) == 0, "fairmutex_words.commit");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, owner) == 8, "fairmutex_words.owner");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, accepted) == 16, "fairmutex_words.accepted");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, first) == 24, "fairmutex_words.first");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, last) == 32, "fairmutex_words.last");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, died) == 40, "fairmutex_words.died");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, policy) == 48, "fairmutex_words.policy");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, lastCPU) == 52, "fairmutex_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, spin) == 56, "fairmutex_words.spin");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, pays) == 60, "fairmutex_words.pays");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, wake) == 64, "fairmutex_words.wake");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, poller) == 72, "fairmutex_words.poller");
SHMI_ASSERT(sizeof(shmi_fairmutex_words) == 128, "fairmutex_words");

/* Slot record of a FairMutex */
typedef struct shmi_fairmutex_record {
    uint8_t pad0_[32];
    uint64_t head;
    uint64_t kinds;
    uint8_t pad1_[16];
    uint64_t entries[16];
} shmi_fairmutex_record;
SHMI_ASSERT(offsetof(shmi_fairmutex_record, head) == 32, "fairmutex_record.head");
SHMI_ASSERT(offsetof(shmi_fairmutex_record, kinds) == 40, "fairmutex_record.kinds");
SHMI_ASSERT(offsetof(shmi_fairmutex_record, entries) == 64, "fairmutex_record.entries");
SHMI_ASSERT(sizeof(shmi_fairmutex_record) == 192, "fairmutex_record");

/* MultiLock */
typedef struct shmi_multilock_head {
    uint32_t policy;
    uint32_t buckets;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint32_t wake;
    uint64_t poller;
    uint8_t pad0_[96];
} shmi_multilock_head;
SHMI_ASSERT(offsetof(shmi_multilock_head, policy) == 0, "multilock_head.policy");
SHMI_ASSERT(offsetof(shmi_multilock_head, buckets) == 4, "multilock_head.buckets");
SHMI_ASSERT(offsetof(shmi_multilock_head, lastCPU) == 8, "multilock_head.lastCPU");
SHMI_ASSERT(offsetof(shmi_multilock_head, spin) == 12, "multilock_head.spin");
SHMI_ASSERT(offsetof(shmi_multilock_head, pays) == 16, "multilock_head.pays");
SHMI_ASSERT(offsetof(shmi_multilock_head, wake) == 20, "multilock_head.wake");
SHMI_ASSERT(offsetof(shmi_multilock_head, poller) == 24, "multilock_head.poller");
SHMI_ASSERT(sizeof(shmi_multilock_head) == 128, "multilock_head");

/* Entry of a key */
typedef struct shmi_multilock_entry {
    uint64_t keyLow;
    uint64_t keyHigh;
    uint64_t hold;
    uint64_t accepted;
    uint64_t first;
    uint64_t last;
} shmi_multilock_entry;
SHMI_ASSERT(offsetof(shmi_multilock_entry, keyLow) == 0, "multilock_entry.keyLow");
SHMI_ASSERT(offsetof(shmi_multilock_entry, keyHigh) == 8, "multilock_entry.keyHigh");
SHMI_ASSERT(offsetof(shmi_multilock_entry, hold) == 16, "multilock_entry.hold");
SHMI_ASSERT(offsetof(shmi_multilock_entry, accepted) == 24, "multilock_entry.accepted");
SHMI_ASSERT(offsetof(shmi_multilock_entry, first) == 32, "multilock_entry.first");
SHMI_ASSERT(offsetof(shmi_multilock_entry, last) == 40, "multilock_entry.last");
SHMI_ASSERT(sizeof(shmi_multilock_entry) == 48, "multilock_entry");

/* Bucket of keys */
typedef struct shmi_multilock_bucket {
    uint64_t commit;
    uint8_t pad0_[8];
    shmi_multilock_entry entry0;
    uint8_t pad1_[16];
    shmi_multilock_entry entry1;
    uint8_t pad2_[16];
    shmi_multilock_entry entry2;
} shmi_multilock_bucket;
SHMI_ASSERT(offsetof(shmi_multilock_bucket, commit) == 0, "multilock_bucket.commit");
SHMI_ASSERT(offsetof(shmi_multilock_bucket, entry0) == 16, "multilock_bucket.entry0");
SHMI_ASSERT(offsetof(shmi_multilock_bucket, entry1) == 80, "multilock_bucket.entry1");
SHMI_ASSERT(offsetof(shmi_multilock_bucket, entry2) == 144, "multilock_bucket.entry2");
SHMI_ASSERT(sizeof(shmi_multilock_bucket) == 192, "multilock_bucket");

/* Block of keys */
typedef struct shmi_multilock_block {
    uint8_t pad0_[32];
    uint32_t bucket;
    uint8_t pad1_[28];
    shmi_multilock_entry entries[4];
} shmi_multilock_block;
SHMI_ASSERT(offsetof(shmi_multilock_block, bucket) == 32, "multilock_block.bucket");
SHMI_ASSERT(offsetof(shmi_multilock_block, entries) == 64, "multilock_block.entries");
SHMI_ASSERT(sizeof(shmi_multilock_block) == 256, "multilock_block");

/* RWMutex */
typedef struct shmi_rwmutex_words {
    uint32_t owner;
    uint32_t wakeReaders;
    uint32_t wakeWriter;
    uint32_t died;
    uint32_t lastCPU;
    uint32_t pays;
    uint32_t paysWriter;
    uint8_t pad0_[4];
    uint64_t pollerReaders;
    uint64_t pollerWriter;
    uint32_t policy;
    uint8_t pad1_[12];
    uint32_t mutex[16];
} shmi_rwmutex_words;
SHMI_ASSERT(offsetof(shmi_rwmutex_words, owner) == 0, "rwmutex_words.owner");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, wakeReaders) == 4, "rwmutex_words.wakeReaders");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, wakeWriter) == 8, "rwmutex_words.wakeWriter");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, died) == 12, "rwmutex_words.died");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, lastCPU) == 16, "rwmutex_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, pays) == 20, "rwmutex_words.pays");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, paysWriter) == 24, "rwmutex_words.paysWriter");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, pollerReaders) == 32, "rwmutex_words.pollerReaders");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, pollerWriter) == 40, "rwmutex_words.pollerWriter");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, policy) == 48, "rwmutex_words.policy");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, mutex) == 64, "rwmutex_words.mutex");
SHMI_ASSERT(sizeof(shmi_rwmutex_words) == 128, "rwmutex_words");

/* Slot record of an RWMutex */
typedef struct shmi_rwmutex_record {
    uint8_t pad0_[64];
    uint64_t state;
    uint8_t pad1_[56];
} shmi_rwmutex_record;
SHMI_ASSERT(offsetof(shmi_rwmutex_record, state) == 64, "rwmutex_record.state");
SHMI_ASSERT(sizeof(shmi_rwmutex_record) == 128, "rwmutex_record");

/* SpinLock */
typedef struct shmi_spin_words {
    uint32_t state;
    uint32_t drain;
    uint8_t pad0_[8];
    uint64_t metSince;
    uint64_t metHold;
    uint64_t gateMetSince;
    uint64_t gateMetHold;
    uint8_t pad1_[16];
    uint32_t wake;
    uint32_t gate;
    uint32_t policy;
    uint32_t died;
    uint32_t spin;
    uint32_t lastCPU;
    uint32_t pays;
    uint8_t pad2_[4];
    uint64_t poller;
    uint64_t gatePoller;
    uint64_t drainPoller;
    uint8_t pad3_[8];
} shmi_spin_words;
SHMI_ASSERT(offsetof(shmi_spin_words, state) == 0, "spin_words.state");
SHMI_ASSERT(offsetof(shmi_spin_words, drain) == 4, "spin_words.drain");
SHMI_ASSERT(offsetof(shmi_spin_words, metSince) == 16, "spin_words.metSince");
SHMI_ASSERT(offsetof(shmi_spin_words, metHold) == 24, "spin_words.metHold");
SHMI_ASSERT(offsetof(shmi_spin_words, gateMetSince) == 32, "spin_words.gateMetSince");
SHMI_ASSERT(offsetof(shmi_spin_words, gateMetHold) == 40, "spin_words.gateMetHold");
SHMI_ASSERT(offsetof(shmi_spin_words, wake) == 64, "spin_words.wake");
SHMI_ASSERT(offsetof(shmi_spin_words, gate) == 68, "spin_words.gate");
SHMI_ASSERT(offsetof(shmi_spin_words, policy) == 72, "spin_words.policy");
SHMI_ASSERT(offsetof(shmi_spin_words, died) == 76, "spin_words.died");
SHMI_ASSERT(offsetof(shmi_spin_words, spin) == 80, "spin_words.spin");
SHMI_ASSERT(offsetof(shmi_spin_words, lastCPU) == 84, "spin_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_spin_words, pays) == 88, "spin_words.pays");
SHMI_ASSERT(offsetof(shmi_spin_words, poller) == 96, "spin_words.poller");
SHMI_ASSERT(offsetof(shmi_spin_words, gatePoller) == 104, "spin_words.gatePoller");
SHMI_ASSERT(offsetof(shmi_spin_words, drainPoller) == 112, "spin_words.drainPoller");
SHMI_ASSERT(sizeof(shmi_spin_words) == 128, "spin_words");

/* Slot record of an RWSpinLock */
typedef struct shmi_rwspin_record {
    uint8_t pad0_[64];
    uint64_t count;
    uint8_t pad1_[56];
} shmi_rwspin_record;
SHMI_ASSERT(offsetof(shmi_rwspin_record, count) == 64, "rwspin_record.count");
SHMI_ASSERT(sizeof(shmi_rwspin_record) == 128, "rwspin_record");

/* SignalWaker */
typedef struct shmi_signal_words {
    uint32_t config;
    uint32_t rows;
    uint8_t pad0_[120];
    uint64_t summary;
    uint8_t pad1_[120];
    uint64_t permits;
    uint8_t pad2_[120];
    uint32_t wake;
    uint32_t lastCPU;
    uint32_t pays;
    uint32_t spin;
    uint64_t poller;
    uint8_t pad3_[104];
    uint64_t status;
    uint8_t pad4_[120];
    uint64_t partition;
    uint8_t pad5_[120];
} shmi_signal_words;
SHMI_ASSERT(offsetof(shmi_signal_words, config) == 0, "signal_words.config");
SHMI_ASSERT(offsetof(shmi_signal_words, rows) == 4, "signal_words.rows");
SHMI_ASSERT(offsetof(shmi_signal_words, summary) == 128, "signal_words.summary");
SHMI_ASSERT(offsetof(shmi_signal_words, permits) == 256, "signal_words.permits");
SHMI_ASSERT(offsetof(shmi_signal_words, wake) == 384, "signal_words.wake");
SHMI_ASSERT(offsetof(shmi_signal_words, lastCPU) == 388, "signal_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_signal_words, pays) == 392, "signal_words.pays");
SHMI_ASSERT(offsetof(shmi_signal_words, spin) == 396, "signal_words.spin");
SHMI_ASSERT(offsetof(shmi_signal_words, poller) == 400, "signal_words.poller");
SHMI_ASSERT(offsetof(shmi_signal_words, status) == 512, "signal_words.status");
SHMI_ASSERT(offsetof(shmi_signal_words, partition) == 640, "signal_words.partition");
SHMI_ASSERT(sizeof(shmi_signal_words) == 768, "signal_words");

/* Signal line */
typedef struct shmi_signal_line {
    uint64_t bits;
    uint8_t pad0_[56];
    uint64_t tasks;
    uint8_t pad1_[56];
} shmi_signal_line;
SHMI_ASSERT(offsetof(shmi_signal_line, bits) == 0, "signal_line.bits");
SHMI_ASSERT(offsetof(shmi_signal_line, tasks) == 64, "signal_line.tasks");
SHMI_ASSERT(sizeof(shmi_signal_line) == 128, "signal_line");

/* Gate */
typedef struct shmi_signal_gate {
    uint64_t word;
    uint32_t task;
    uint8_t pad0_[116];
} shmi_signal_gate;
SHMI_ASSERT(offsetof(shmi_signal_gate, word) == 0, "signal_gate.word");
SHMI_ASSERT(offsetof(shmi_signal_gate, task) == 8, "signal_gate.task");
SHMI_ASSERT(sizeof(shmi_signal_gate) == 128, "signal_gate");

/* Participant row */
typedef struct shmi_signal_row {
    uint64_t count;
    uint8_t pad0_[120];
    uint64_t stats[14];
    uint8_t pad1_[16];
} shmi_signal_row;
SHMI_ASSERT(offsetof(shmi_signal_row, count) == 0, "signal_row.count");
SHMI_ASSERT(offsetof(shmi_signal_row, stats) == 128, "signal_row.stats");
SHMI_ASSERT(sizeof(shmi_signal_row) == 256, "signal_row");
