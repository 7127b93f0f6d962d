/* For TestEventOrdersLoads: the functions of an event that return after a compare-and-swap. order.h has them, cut out
 * of the header, and what they need is declared here. */
#include <stddef.h>
#include <stdint.h>

#define SHMI_FN static inline __attribute__((unused, always_inline))
#define SHMSYNC_CRASHPOINT(name) ((void)0)
#define SHMI_EVENTCOUNT_ANNOUNCED (UINT64_C(1) << 32)

struct shmi_count_words {
    uint64_t state;
};
struct shmi_eventcount {
    struct shmi_count_words *w;
};
struct shmi_event {
    struct shmi_eventcount count;
};

#include "atomics.h"

void shmi_eventcount_note_cpu(struct shmi_eventcount *e, uint64_t s);
void shmi_eventcount_wake_all(struct shmi_eventcount *e);
SHMI_FN uint64_t shmi_event_tokens(uint64_t s) { return s >> 33; }
SHMI_FN uint64_t shmi_event_with(uint64_t s, uint64_t tokens) { return ((s + 1) & UINT32_MAX) | tokens << 33; }
SHMI_FN int shmi_event_swap(struct shmi_event *e, uint64_t from, uint64_t to) { return shmi_cas64(&e->count.w->state, from, to); }
SHMI_FN uint64_t shmi_eventcount_load(struct shmi_eventcount *e) { return shmi_ld64(&e->w->state); }
SHMI_FN uint64_t shmi_eventcount_next(uint64_t s) { return (s + 1) & UINT32_MAX; }

SHMI_FN uint64_t shmi_event_look(struct shmi_event *e, uint64_t *waits)
{
    *waits = 0;
    return shmi_ld64(&e->count.w->state);
}

#include "order.h"

int claim(struct shmi_event *e);
int turn(struct shmi_event *e, uint64_t set);
int claim(struct shmi_event *e) { return shmi_event_claim(e); }
int turn(struct shmi_event *e, uint64_t set) { return shmi_event_turn(e, set); }
