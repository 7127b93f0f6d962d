/* For TestEndOfRollbackIsRelease: the functions that end a rollback. order.h has them, cut out of the header, and what
 * they need is declared here. */
#include <stddef.h>
#include <stdint.h>

#define EPROTO 71
#define SHMI_FN static inline __attribute__((unused, always_inline))
#define SHMSYNC_CRASHPOINT(name) ((void)0)
#define SHMI_LOG_LOST (UINT64_C(4) << 61)
#define SHMI_LOG_PHASE(s) ((uint32_t)((s) >> 61))
#define SHMI_LOG_TAIL(s) ((s) & UINT32_MAX)
#define SHMI_LOG_ID(s) ((shmi_participant_id)((s) >> 32 & UINT32_C(0x1fffffff)))
enum { SHMI_logActive = 1, SHMI_logUndone = 2, SHMI_logCommitted = 3 };

typedef uint32_t shmi_participant_id;
typedef struct shmsync_arena {
    shmi_participant_id self;
} shmsync_arena;
typedef struct shmi_log_head {
    uint64_t state;
} shmi_log_head;
typedef struct shmi_log {
    shmi_log_head *head;
} shmi_log;

int shmi_current(shmsync_arena *a, shmi_participant_id n);
int shmi_log_valid(const shmi_log *l, uint64_t s);
int shmi_log_check(shmsync_arena *a, const shmi_log *l, uint64_t tail, uint64_t *blocks);
int shmi_log_restore(shmsync_arena *a, const shmi_log *l, uint64_t tail);
int shmi_log_settle(shmsync_arena *a, const shmi_log *l, uint64_t tail, shmi_participant_id n, int committed);
void shmi_log_give(shmsync_arena *a, const shmi_log *l, uint64_t tail);
uint64_t shmi_make_log(uint32_t phase, shmi_participant_id n, uint64_t tail);

#include "order.h"

void lose(const shmi_log *l);
int end(shmsync_arena *a, const shmi_log *l, uint64_t s);
void lose(const shmi_log *l) { shmi_log_lose(l); }
int end(shmsync_arena *a, const shmi_log *l, uint64_t s) { return shmi_log_end(a, l, s); }
