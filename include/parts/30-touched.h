
/* ---- What a participant has touched: see internal/arenakernel/touched.go ----
 *
 * slotTouched says in which chunks of the heap the participant may have left something that must be taken back when it
 * dies or leaves. Bit k stands for the chunks whose number is k modulo SHMI_touchedBits. The participant sets the bit
 * before it writes its ID into a word of such a chunk for the first time. A reaper examines no other chunk. */

enum { SHMI_slotTouched = 1280, SHMI_touchedWords = 64, SHMI_touchedBits = SHMI_touchedWords * 64 };

SHMI_FN uint64_t *shmi_touched_word(shmsync_arena *a, uint32_t slot, uint64_t bit)
{
    return shmi_slot64(a, slot, SHMI_slotTouched + (uint32_t)(bit / 64 * 8));
}
/* Notes that this participant is about to leave something in a chunk. */
SHMI_FN void shmi_touch(shmsync_arena *a, uint64_t chunk)
{
    uint64_t bit = chunk % SHMI_touchedBits, mask = UINT64_C(1) << bit % 64, *word = shmi_touched_word(a, a->my_slot, bit);
    if ((shmi_ld64(word) & mask) == 0)
        __atomic_fetch_or(word, mask, __ATOMIC_SEQ_CST);
}
/* Advances *chunk to the first chunk, from *chunk on, that the participant in the slot may have touched. Returns 0 if
 * there is none. */
SHMI_FN int shmi_next_touched(shmsync_arena *a, uint32_t slot, uint64_t *chunk)
{
    for (; *chunk < a->geo.chunk_count; ++*chunk) {
        uint64_t bit = *chunk % SHMI_touchedBits, w = shmi_ld64(shmi_touched_word(a, slot, bit)) >> bit % 64;
        if ((w & 1) != 0)
            return 1;
        if (w == 0)
            *chunk |= 63;
    }
    return 0;
}
/* Whether slotTouched of a slot has no bit set. */
SHMI_FN int shmi_touched_nothing(shmsync_arena *a, uint32_t slot)
{
    uint64_t bit;
    for (bit = 0; bit < SHMI_touchedBits; bit += 64)
        if (shmi_ld64(shmi_touched_word(a, slot, bit)) != 0)
            return 0;
    return 1;
}
SHMI_FN void shmi_worked(shmsync_arena *a, uint64_t n) { __atomic_fetch_add(&a->work, n, __ATOMIC_RELAXED); }
/* Clears slotTouched of a slot. The caller has removed the traces of all participants of the slot, and no participant
 * can take the slot now. */
SHMI_FN void shmi_forget_touched(shmsync_arena *a, uint32_t slot)
{
    uint64_t bit;
    for (bit = 0; bit < SHMI_touchedBits; bit += 64)
        if (shmi_ld64(shmi_touched_word(a, slot, bit)) != 0)
            shmi_st64(shmi_touched_word(a, slot, bit), 0);
}
