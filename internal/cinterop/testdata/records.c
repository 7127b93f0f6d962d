/* Tests a process in C that frees slot records while a peer changes them: records ARENA. SIGALRM ends a test that
 * hangs. */
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

enum { RECORDS = 40 };
static shmi_block records[RECORDS];
static int freed, revive, reuse;

void at_point(const char *name)
{
    int k;
    if (strcmp(name, "arena.slotrecord.freeing") != 0)
        return;
    freed++;
    for (k = 0; revive && k < RECORDS; k++)
        shmi_st32(records[k].word, shmi_record_word((uint32_t)k + 1));
    if (reuse) /* a peer has freed all records but the one that is first on the list, and has got their blocks */
        for (k = 0; k < RECORDS - 1; k++)
            shmi_st32(records[k].word, SHMI_blockRaw);
    reuse = 0;
}

/* Makes an object with the records of 40 slots; record k is that of slot k+1. */
static void make(shmsync_arena *a)
{
    shmi_spec spec;
    shmi_object o;
    shmi_off next = 0;
    int k, created;
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_KIND('B', 'L', 'O', 'K');
    spec.version = 1;
    spec.name = "x";
    spec.size = 64;
    CHECK(shmi_open_object(a, &spec, &o, &created), 0);
    for (k = 0; k < RECORDS; k++) {
        shmi_off off;
        CHECK(shmi_claim(a, 128, &off), 0);
        CHECK(shmi_locate(a, off, &records[k]), 1);
        shmi_st64(shmi_u64(a, off + SHMI_recordObject), o.off);
        shmi_st32(shmi_u32(a, off + SHMI_recordSlot), (uint32_t)k + 1);
        shmi_st64(shmi_u64(a, off + SHMI_recordNext), next);
        CHECK(shmi_block_swap(&records[k], shmi_make_block(SHMI_blockClaimed, a->self), shmi_record_word((uint32_t)k + 1)), 1);
        next = off;
    }
    shmi_st32(shmi_u32(a, o.off + SHMI_objRecords), (uint32_t)(next / SHMI_blockMin));
    shmi_close_object(a, o.off);
}
static int left(uint32_t word)
{
    int k, n = 0;
    for (k = 0; k < RECORDS; k++)
        n += shmi_ld32(records[k].word) == (word != 0 ? word : shmi_record_word((uint32_t)k + 1));
    return n;
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    if (argc != 2)
        return 2;
    alarm(300);
    CHECK(shmsync_arena_open(argv[1], NULL, &a), 0);
    make(a);
    CHECK(shmsync_delete(a, "x"), 0);
    CHECK(freed, RECORDS);
    CHECK(left(0), 0);

    make(a);
    freed = 0;
    reuse = 1; /* the first call has freed the record of slot 9 by then */
    CHECK(shmsync_delete(a, "x"), 0);
    CHECK(left(SHMI_blockRaw), RECORDS - 1);

    make(a);
    freed = 0;
    revive = 1;
    CHECK(shmsync_delete(a, "x"), 0);
    CHECK(freed <= (SHMI_MaxSlots / 32 + 1) * 32, 1);
    CHECK(shmsync_arena_close(a), 0);
    return 0;
}
