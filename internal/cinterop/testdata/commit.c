/* A change, a commit, and a later change of the same word, all inlined into one function. If a compiler sees no
 * fence, it may delete the first store of the word. */
#include <stdint.h>
#define SHMI_FN static inline
#include "commit.h"

void change(uint64_t *restrict current, uint32_t *restrict copy);
void change(uint64_t *restrict current, uint32_t *restrict copy)
{
    copy[0] = 4711;
    copy[3] = 4712;
    shmi_commit_store(current, __atomic_load_n(current, __ATOMIC_RELAXED) + 1);
    copy[0] = 4713;
}
