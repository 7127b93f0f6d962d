
/* ---- Telling the owner of a wait that the wait is over: see internal/arenakernel/telling.go ----
 *
 * slotTelling counts the waits of others that this participant is ending. A wait counts from just before the
 * participant resolves it until it has told the owner. While the count is 0, the participant puts no resolved or ready
 * node on a ready stack. So a reaper knows when no process will put a node of the dead on a stack any more. */

enum { SHMI_slotTelling = 240 };

SHMI_FN void shmi_begin_tell(shmsync_arena *a) { shmi_add32(shmi_slot32(a, a->my_slot, SHMI_slotTelling), 1); }
SHMI_FN void shmi_end_tell(shmsync_arena *a) { shmi_add32(shmi_slot32(a, a->my_slot, SHMI_slotTelling), (uint32_t)-1); }

/* Whether each participant that was ending a wait before this call has told the owner of the wait, or is dead. */
SHMI_FN int shmi_all_told(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++)
        if (shmi_ld32(shmi_slot32(a, i, SHMI_slotTelling)) != 0 && shmi_current(a, shmi_id_in(i, shmi_slot_state(a, i))))
            return 0;
    return 1;
}
/* Waits until shmi_all_told is true, but only for a short time. Returns whether it is true. */
SHMI_FN int shmi_await_told(shmsync_arena *a)
{
    int tries;
    for (tries = 0; tries < 50; tries++) {
        if (shmi_all_told(a))
            return 1;
        sched_yield();
    }
    return shmi_all_told(a);
}
