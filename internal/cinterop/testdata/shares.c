/* Tests what a handle in C remembers of the slot records of an object: shares NAME. Exit status 0 if a late call and
 * a changed list leave that as it is. */
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
static void *watched; /* memory for which the program notes whether it is given back to malloc */
static int given_back;
static void note_free(void *p)
{
    given_back |= p != NULL && p == watched;
    free(p);
}
#define free(p) note_free(p)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

enum { OTHER = 7 };
static shmsync_semaphore *closing;

/* Another thread closes the handle while a call walks over the shares. */
void at_point(const char *name)
{
    shmsync_semaphore *s = closing;
    if (s == NULL || strcmp(name, "semaphore.gather.shut") != 0)
        return;
    closing = NULL;
    watched = (void *)s->impl->q.known;
    CHECK(shmsync_semaphore_close(s), 0);
}

/* Puts a record of that slot at the front of the list. */
static void push(shmsync_arena *a, shmi_off object, uint32_t slot, size_t size)
{
    uint32_t *head = shmi_u32(a, object + SHMI_objRecords);
    shmi_block b;
    shmi_off off;
    CHECK(shmi_claim(a, size, &off), 0);
    CHECK(shmi_locate(a, off, &b), 1);
    shmi_st64(shmi_u64(a, off + SHMI_recordObject), object);
    shmi_st32(shmi_u32(a, off + SHMI_recordSlot), slot);
    shmi_st64(shmi_u64(a, off + SHMI_recordNext), (shmi_off)shmi_ld32(head) * SHMI_blockMin);
    CHECK(shmi_block_swap(&b, shmi_make_block(SHMI_blockClaimed, a->self), shmi_record_word(slot)), 1);
    shmi_st32(head, (uint32_t)(off / SHMI_blockMin));
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_semaphore sem, copy;
    shmsync_event_options auto_reset = {.auto_reset = 1};
    shmsync_event event;
    shmsync_barrier barrier;
    uint32_t *list, head;
    void *other;
    if (argc != 2)
        return 2;
    alarm(60);
    CHECK(shmsync_arena_open(argv[1], NULL, &a), 0);

    /* A late call reads the remembered shares. */
    CHECK(shmsync_semaphore_open(a, "late", 4, NULL, &sem), 0);
    CHECK(shmsync_semaphore_acquire(&sem, 2), 0);
    CHECK(shmsync_semaphore_release(&sem, 1), 0);
    CHECK(shmsync_semaphore_release(&sem, 1), 0); /* this opens the share of this process */
    copy = sem;
    closing = &copy;
    CHECK(shmsync_semaphore_acquire(&sem, 4), 0);
    CHECK(closing == NULL, 1);
    CHECK(given_back, 0);
    CHECK(shmsync_semaphore_acquire(&sem, 1), EBADF);

    /* A peer hides a remembered record, and gives a slot another record. */
    CHECK(shmsync_semaphore_open(a, "sem", 4, NULL, &sem), 0);
    list = shmi_u32(a, sem.impl->q.o.off + SHMI_objRecords);
    head = shmi_ld32(list);
    push(a, sem.impl->q.o.off, OTHER, sizeof(shmi_semaphore_record));
    other = shmi_rq_slot(&sem.impl->q, OTHER);
    CHECK(other != NULL, 1);
    shmi_st32(list, head);
    CHECK((void *)shmi_rq_slot(&sem.impl->q, OTHER) == other, 1);
    push(a, sem.impl->q.o.off, a->my_slot, sizeof(shmi_semaphore_record));
    CHECK((void *)shmi_rq_slot(&sem.impl->q, a->my_slot) == (void *)sem.impl->own, 1);
    shmi_st32(list, head);

    CHECK(shmsync_event_open(a, "event", &auto_reset, &event), 0);
    list = shmi_u32(a, event.impl->o.off + SHMI_objRecords);
    head = shmi_ld32(list);
    push(a, event.impl->o.off, OTHER, sizeof(shmi_event_record));
    other = shmi_event_share_of(event.impl, OTHER);
    CHECK(other != NULL, 1);
    shmi_st32(list, head);
    CHECK(shmi_event_share_of(event.impl, OTHER) == other, 1);
    push(a, event.impl->o.off, a->my_slot, sizeof(shmi_event_record));
    CHECK(shmi_event_share_of(event.impl, a->my_slot) == event.impl->own, 1);
    shmi_st32(list, head);

    CHECK(shmsync_barrier_open(a, "barrier", 2, NULL, &barrier), 0);
    list = shmi_u32(a, barrier.impl->e.o.off + SHMI_objRecords);
    head = shmi_ld32(list);
    other = shmi_barrier_slot_of(barrier.impl, a->my_slot);
    push(a, barrier.impl->e.o.off, a->my_slot, sizeof(shmi_barrier_slot));
    CHECK(shmi_barrier_slot_of(barrier.impl, a->my_slot) == other, 1);
    shmi_st32(list, head);
    return 0;
}
