
/* ---- Acts on the dead: see internal/arenakernel/act.go ----
 *
 * Before a thread takes a word from a dead participant, it writes that participant's ID to an act word of its own
 * slot, reads the word again, and asks once more whether the participant is dead. While an ID is in an act word, no
 * new participant gets that ID, however long the thread is stopped. */

enum { SHMI_slotActs = 1792, SHMI_actWords = 8 };

SHMI_FN int shmi_gone(shmsync_arena *a, shmi_participant_id n);

typedef struct shmi_act {
    uint32_t *word; /* NULL: none */
    uint32_t bit;   /* of shmsync_arena.acting */
    uint64_t before; /* signal mask */
} shmi_act;

/* Writes the ID n to a free act word. Signals are blocked until shmi_end_act, except those of faults (SHMI_SIGNALS):
 * otherwise a handler that acts might find no free act word. */
SHMI_FN void shmi_begin_act(shmsync_arena *a, shmi_act *act, shmi_participant_id n)
{
    uint64_t all = SHMI_SIGNALS;
    uint32_t k;
    act->word = NULL;
    if (n == 0 || n == a->self || a->my_slot == 0)
        return; /* this process leaves, or has no slot yet */
    SHMSYNC_CRASHPOINT("arena.act.begun");
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &act->before, sizeof all);
    for (;; sched_yield())
        for (k = 0; k < SHMI_actWords; k++) {
            act->bit = UINT32_C(1) << k;
            if ((shmi_or32(&a->acting, act->bit) & act->bit) == 0) {
                act->word = shmi_slot32(a, a->my_slot, SHMI_slotActs + k * 4);
                shmi_st32(act->word, n);
                SHMSYNC_CRASHPOINT("arena.act.published");
                return;
            }
        }
}
SHMI_FN void shmi_end_act(shmsync_arena *a, shmi_act *act)
{
    if (act->word == NULL)
        return;
    shmi_st32(act->word, 0);
    shmi_and32(&a->acting, ~act->bit);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &act->before, NULL, sizeof act->before);
}
/* Clears the act words of this joiner's slot, which its dead predecessor has left. */
SHMI_FN void shmi_forget_acts(shmsync_arena *a)
{
    uint32_t k;
    for (k = 0; k < SHMI_actWords; k++)
        shmi_st32(shmi_slot32(a, a->my_slot, SHMI_slotActs + k * 4), 0);
}

/* Whether n, whose ID is in an act word of this process, is dead; if gone is set, whether n is gone, too. */
SHMI_FN int shmi_act_holds(shmsync_arena *a, const shmi_act *act, shmi_participant_id n, int gone)
{
    if (act->word == NULL)
        return 1;
    if (shmi_current(a, n) || (gone && !shmi_gone(a, n)))
        return 0;
    SHMSYNC_CRASHPOINT("arena.act.verified");
    return 1;
}
/* Changes *word from old, which names n, to the value to, if n is dead. If gone is set, n must be gone, too. Returns
 * whether it did. If n is this participant, it is leaving: then the word changes if it has the value old. Each change
 * that takes a word from a dead participant goes through this function, except where the caller holds a lock that
 * guards the word. */
SHMI_FN int shmi_take_from32(shmsync_arena *a, shmi_participant_id n, uint32_t *word, uint32_t old, uint32_t to, int gone)
{
    shmi_act act;
    int took;
    shmi_begin_act(a, &act, n);
    took = shmi_ld32(word) == old && shmi_act_holds(a, &act, n, gone) && shmi_cas32(word, old, to);
    shmi_end_act(a, &act);
    return took;
}
SHMI_FN int shmi_take_from64(shmsync_arena *a, shmi_participant_id n, uint64_t *word, uint64_t old, uint64_t to, int gone)
{
    shmi_act act;
    int took;
    shmi_begin_act(a, &act, n);
    took = shmi_ld64(word) == old && shmi_act_holds(a, &act, n, gone) && shmi_cas64(word, old, to);
    shmi_end_act(a, &act);
    return took;
}
/* Whether the reap of the participant dead takes back what the participant o has: the reaper of dead cleans up after o,
 * too, and no living participant has the ID o. If o is this participant, it is leaving, and takes back its own
 * holds. */
SHMI_FN int shmi_reaps(shmsync_arena *a, shmi_participant_id dead, shmi_participant_id o)
{
    return shmi_covers(dead, o) && (o == a->self || !shmi_current(a, o));
}
