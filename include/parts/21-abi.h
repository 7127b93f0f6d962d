/* ---- The bytes of an arena. Constants have the names of docs/abi.md. ---- */

enum {
    SHMI_orderMark = 0x01020304,
    SHMI_LayoutVersion = SHMSYNC_LAYOUT_VERSION,
    SHMI_wordBytes = 8,
    SHMI_knownCompat = 1,
    SHMI_knownROCompat = 0,
    SHMI_knownIncompat = 0,
    SHMI_headerSize = 4096,
    SHMI_MaxSlots = 2047,
    SHMI_maxGeneration = 262143,
    SHMI_slotStride = 2048,
    SHMI_aliveWords = 4,
    SHMI_aliveStride = 8,
    SHMI_announceCount = 32,
    SHMI_announceStride = 32,
    SHMI_labelBytes = 63,
    SHMI_deathRecordCount = 256,
    SHMI_deathRecordDeaths = 192,
    SHMI_deathRecordStride = 128,
    SHMI_chunkSize = 65536,
    SHMI_blockMin = 64,
    SHMI_blockWords = 1024,
    SHMI_blockWordSize = 4,
    SHMI_maxAlign = 4096,
    SHMI_objectHeader = 64,
    SHMI_nodeSize = 64,
    SHMI_maxObjectName = 255
};
#define SHMI_MaxObject UINT64_C(4293918720)
#define SHMI_compatCounted UINT64_C(1) /* objects have counters */
#define SHMI_magic "shmsync" /* plus the NUL */

enum { /* header */
    SHMI_hdrMagic = 0,
    SHMI_hdrOrder = 8,
    SHMI_hdrVersion = 12,
    SHMI_hdrWord = 16,
    SHMI_hdrHeaderSize = 20,
    SHMI_hdrCompat = 24,
    SHMI_hdrROCompat = 32,
    SHMI_hdrIncompat = 40,
    SHMI_hdrSize = 48,
    SHMI_hdrID = 56,
    SHMI_hdrCreated = 72,
    SHMI_hdrSlots = 80,
    SHMI_hdrSlotStride = 84,
    SHMI_hdrSlotsOff = 88,
    SHMI_hdrDeathRecordOff = 96,
    SHMI_hdrDeathRecordCount = 104,
    SHMI_hdrDeathRecordStride = 108,
    SHMI_hdrDirOff = 112,
    SHMI_hdrDirCount = 120,
    SHMI_hdrChunksOff = 128,
    SHMI_hdrBlocksOff = 136,
    SHMI_hdrHeapOff = 144,
    SHMI_hdrChunkSize = 152,
    SHMI_hdrBlockWords = 156,
    SHMI_hdrChunkCount = 160,
    SHMI_hdrChecksum = 168,
    SHMI_hdrDeathRecordsTotal = 256,
    SHMI_hdrLeftTotal = 272,
    SHMI_hdrDeaths = 264,
    SHMI_hdrDirReach = 268,
    SHMI_hdrDirLowering = 288,
    SHMI_hdrDirLowerer = 296,
    SHMI_hdrEpoch = 304,
    SHMI_hdrEpochDeaths = 312,
    SHMI_hdrEpochDeathsOdd = 360,
    SHMI_hdrSuccessors = 356,
    SHMI_hdrChunkHint = 320,
    SHMI_hdrEpochBoot = 328,
    SHMI_hdrEpochBegan = 344,
    SHMI_hdrSynced = 352
};

enum { /* slot */
    SHMI_slotState = 0,
    SHMI_slotReaper = 4,
    SHMI_slotCaps = 8,
    SHMI_slotPID = 12,
    SHMI_slotTID = 16,
    SHMI_slotUID = 20,
    SHMI_slotStart = 24,
    SHMI_slotPIDNS = 32,
    SHMI_slotJoined = 40,
    SHMI_slotBootID = 48,
    SHMI_slotLabel = 64,
    SHMI_slotAlive = 128,
    SHMI_slotDoorbell = 192,
    SHMI_slotAdmission = 196,
    SHMI_slotReady = 200,
    SHMI_slotDied = 208,
    SHMI_slotWatchDoorbell = 216,
    SHMI_slotReclaimed = 220,
    SHMI_slotOpening = 224,
    SHMI_slotWalking = 232,
    SHMI_slotWindow = 248, /* see 35-window.h */
    SHMI_slotAnnounce = 256,
    SHMI_slotDescribed = 1824,
    SHMI_slotIdentitySum = 1832,
    SHMI_slotGone = 1840
};

enum { SHMI_capRobust = 1, SHMI_capOFD = 2, SHMI_capNoKernelIO = 4, SHMI_capFence = 8, SHMI_capWaitV = 16, SHMI_capTold = 32, SHMI_capAsyncIO = 64 };

enum { /* phases of a slot */
    SHMI_epochNew = 0,
    SHMI_epochOpen = 1,
    SHMI_epochClaiming = 2,
    SHMI_epochClaimed = 3,
    SHMI_epochRemoved = 4
};
enum {
    SHMI_admissionPending = 0,
    SHMI_admissionIn = 1,
    SHMI_admissionRefused = 2,
    SHMI_admissionFirst = 3
};
enum {
    SHMI_phaseFree,
    SHMI_phaseJoining,
    SHMI_phaseLive,
    SHMI_phaseLeaving,
    SHMI_phaseDead
};

enum { SHMI_announceObject = 0, SHMI_announceWord = 8, SHMI_announceSince = 16, SHMI_announceWanted = 24 };

enum { /* death record */
    SHMI_deathRecordSeq = 0,
    SHMI_deathRecordID = 8,
    SHMI_deathRecordPID = 12,
    SHMI_deathRecordDied = 16,
    SHMI_deathRecordFlags = 24,
    SHMI_deathRecordLabel = 32,
    SHMI_deathRecordLeft = 1,
    SHMI_deathRecordPending = 2
};

enum { /* kinds of chunk */
    SHMI_chunkFree,
    SHMI_chunkClaimed,
    SHMI_chunkSlab,
    SHMI_chunkSweeping,
    SHMI_chunkHead,
    SHMI_chunkTail
};
#define SHMI_CHUNK_RESERVED UINT64_C(8)

enum { /* kinds of block */
    SHMI_blockFree,
    SHMI_blockClaimed,
    SHMI_blockRaw,
    SHMI_blockObject,
    SHMI_blockNode,
    SHMI_blockFreeing,
    SHMI_blockBlocked,
    SHMI_blockLogged
};

enum { SHMI_classNode = 17, SHMI_classes = 18, SHMI_classSpan = -1 };

static const uint32_t shmi_class_size[SHMI_classes] = {
    64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768, 64};

enum { /* object header */
    SHMI_objKind = 0,
    SHMI_objVersion = 4,
    SHMI_objState = 8,
    SHMI_objNameOff = 12,
    SHMI_objSize = 16,
    SHMI_objHash = 24,
    SHMI_objCreated = 32,
    SHMI_objOpenOff = 40,
    SHMI_objTypeLen = 44,
    SHMI_objLayout = 48,
    SHMI_objRecords = 56,
    SHMI_objOfKind = 60
};

enum { /* slot record */
    SHMI_recordNext = 0,
    SHMI_recordObject = 8,
    SHMI_recordSlot = 16,
    SHMI_recordNumber = 20,
    SHMI_slotRecordHeader = 32
};

enum { SHMI_objectPending, SHMI_objectCommitted, SHMI_objectAborted, SHMI_objectDeleting };

enum { /* states of a wait node */
    SHMI_NodeFree,
    SHMI_NodeIdle,
    SHMI_NodeWaiting,
    SHMI_NodeReady,
    SHMI_NodeQueued,
    SHMI_NodeAsleep,
    SHMI_NodeParked,
    SHMI_NodeResolved,
    SHMI_NodeLeft
};

typedef uint64_t shmi_off;
typedef uint32_t shmi_participant_id; /* slot in bits 0..10, generation in bits 11..28 */
#define SHMI_NAME_MASK 0x1fffffffu

typedef struct shmi_node {
    uint32_t word;       /* state in bits 0..3, generation above */
    uint32_t owner;      /* ID of the participant that owns the node */
    uint64_t object;
    uint64_t next;
    uint64_t ready_next;
    uint64_t wanted;
    uint64_t stamp;
    uint64_t list;
    uint64_t extra;
} shmi_node;

typedef struct shmi_mutex_words {
    uint32_t owner;
    uint32_t pad0_[15];
    uint32_t wake;
    uint32_t starving;
    uint32_t handoff;
    uint32_t policy;
    uint32_t died;
    uint32_t spin;
    uint32_t lastCPU;
    uint32_t pays;
    uint64_t poller;
    uint64_t handed;
    uint64_t metSince;   /* diagnostics: when a waiter first saw the hold metHold, CLOCK_MONOTONIC ns. Atomic. */
    uint64_t metHold;    /* diagnostics: owner word << 32 | wake word, as they were at metSince. Atomic. */
    uint64_t counts[8];  /* diagnostics; see compatCounted */
} shmi_mutex_words;

enum { SHMI_POLICY_REPORT, SHMI_POLICY_RELEASE, SHMI_POLICY_ROLLBACK }; /* in the body of a lock */
enum { SHMI_logHead = 64, SHMI_logLeast = 64, SHMI_logMost = 1 << 20, SHMI_logDefault = 16384, SHMI_recordFooter = 16 };
enum { SHMI_logIdle, SHMI_logActive, SHMI_logUndone, SHMI_logCommitted, SHMI_logLost };
enum { SHMI_recordBytes, SHMI_recordAlloc, SHMI_recordFree, SHMI_recordTemporary, SHMI_recordGiven };

typedef struct shmi_log_head {
    uint64_t state;
    uint32_t size;
    uint32_t pad0_;
    uint64_t rollbacks;  /* for people */
    uint64_t highest;    /* for people */
    uint64_t pad1_[4];
} shmi_log_head;

typedef struct shmi_futex_words {
    uint64_t state;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint32_t pad0_;
    uint64_t poller;
    uint64_t pad1_[12];
} shmi_futex_words;

#define SHMI_AT(type, field, off) SHMI_ASSERT(offsetof(type, field) == (off), #type "." #field)
SHMI_AT(shmi_node, word, 0);
SHMI_AT(shmi_node, owner, 4);
SHMI_AT(shmi_node, object, 8);
SHMI_AT(shmi_node, next, 16);
SHMI_AT(shmi_node, ready_next, 24);
SHMI_AT(shmi_node, wanted, 32);
SHMI_AT(shmi_node, stamp, 40);
SHMI_AT(shmi_node, list, 48);
SHMI_AT(shmi_node, extra, 56);
SHMI_ASSERT(sizeof(shmi_node) == SHMI_nodeSize, "shmi_node");
SHMI_AT(shmi_mutex_words, owner, 0);
SHMI_AT(shmi_mutex_words, wake, 64);
SHMI_AT(shmi_mutex_words, starving, 68);
SHMI_AT(shmi_mutex_words, handoff, 72);
SHMI_AT(shmi_mutex_words, policy, 76);
SHMI_AT(shmi_mutex_words, died, 80);
SHMI_AT(shmi_mutex_words, spin, 84);
SHMI_AT(shmi_mutex_words, lastCPU, 88);
SHMI_AT(shmi_mutex_words, counts, 128);
SHMI_AT(shmi_mutex_words, pays, 92);
SHMI_AT(shmi_mutex_words, poller, 96);
SHMI_AT(shmi_mutex_words, handed, 104);
SHMI_AT(shmi_mutex_words, metSince, 112);
SHMI_AT(shmi_mutex_words, metHold, 120);
SHMI_ASSERT(sizeof(shmi_mutex_words) == 192, "shmi_mutex_words");
SHMI_AT(shmi_log_head, state, 0);
SHMI_AT(shmi_log_head, size, 8);
SHMI_AT(shmi_log_head, rollbacks, 16);
SHMI_AT(shmi_log_head, highest, 24);
SHMI_ASSERT(sizeof(shmi_log_head) == SHMI_logHead, "shmi_log_head");
SHMI_AT(shmi_futex_words, state, 0);
SHMI_AT(shmi_futex_words, lastCPU, 8);
SHMI_AT(shmi_futex_words, spin, 12);
SHMI_AT(shmi_futex_words, pays, 16);
SHMI_AT(shmi_futex_words, poller, 24);
SHMI_ASSERT(sizeof(shmi_futex_words) == 128, "shmi_futex_words");

/* A kind is four letters, the first in the lowest byte. */
#define SHMI_KIND(a, b, c, d) ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

