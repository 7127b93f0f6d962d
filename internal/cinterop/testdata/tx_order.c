/* Only the store of the state of an undo log, inlined between a record and a program's own stores. It compiles for a
 * machine whose C library is not installed here. */
#include <stdint.h>

#define SHMI_FN static inline __attribute__((unused, always_inline))
typedef struct shmi_log_head {
    uint64_t state;
} shmi_log_head;

#ifdef WITHOUT_BARRIERS
#define __atomic_signal_fence(order) ((void)(order))
#endif
#include "order.h"

/* Saves *data, changes it, and commits. */
void change(shmi_log_head *log, uint64_t *record, uint64_t *data, uint64_t tail, uint64_t to)
{
    *record = *data;
    shmi_log_store(log, tail);
    *data = to;
    shmi_log_store(log, 0);
}
/* The same, if the program says that no other pointer leads to its data. */
void change_restrict(shmi_log_head *log, uint64_t *record, uint64_t *restrict data, uint64_t tail, uint64_t to)
{
    *record = *data;
    shmi_log_store(log, tail);
    *data = to;
    shmi_log_store(log, 0);
}
/* Saves and changes the same bytes twice: the first state and the first change must stay. */
void change_twice(shmi_log_head *log, uint64_t *record, uint64_t *restrict data, uint64_t tail, uint64_t to)
{
    *record = *data;
    shmi_log_store(log, tail);
    *data = to;
    shmi_log_store(log, 0);
    *record = *data;
    shmi_log_store(log, tail);
    *data = to;
    shmi_log_store(log, 0);
}
