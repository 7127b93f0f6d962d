
/* ---- The generations of a slot: see internal/arenakernel/window.go ----
 *
 * A slot goes through the generations of a window. When they are used up, a joiner records another window for the slot.
 * No word of the arena contains an ID with one of the new generations, and no thread is about to act on such an ID. The
 * next participant of the slot gets the first generation of the new window. */

enum {
    /* SHMI_slotWindow: first generation in bits 0..17, last in bits 18..35, number in bits 36..63 */
    SHMI_RENEW_MOST = 64, /* the most slots that one search can renew */
    SHMI_SEARCHES = 3,    /* see searches in window.go */
    SHMI_RENEW_EVERY = 64 /* after this many joins of a slot, a joiner also renews the other slots */
};
#define SHMI_HEIRS_LEFT 256u /* these generations of a window are only for joiners that take over the slot of a dead participant */
/* Tests make SHMI_GENERATIONS_MOST and SHMI_WINDOW_LEAST smaller, so that generations are used again soon. */
#ifndef SHMI_GENERATIONS_MOST
#define SHMI_GENERATIONS_MOST 262143u
#endif
#ifndef SHMI_WINDOW_LEAST
#define SHMI_WINDOW_LEAST 32u
#endif

/* The kinds of the plain objects. */
#define SHMI_KIND_VALUE UINT32_C(0x554c4156) /* VALU */
#define SHMI_KIND_BLOCK UINT32_C(0x4b4f4c42) /* BLOK */

typedef struct shmi_window {
    uint64_t raw;
    uint32_t first, last, number;
} shmi_window;

SHMI_FN uint64_t shmi_make_window(uint32_t first, uint32_t last, uint32_t number)
{
    return first | (uint64_t)last << 18 | (uint64_t)number << 36;
}
/* The window of slot i. It is not legal if a peer has overwritten the word. */
SHMI_FN shmi_window shmi_window_of(const shmsync_arena *a, uint32_t i)
{
    shmi_window w;
    w.raw = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
    w.first = w.raw == 0 ? 1 : (uint32_t)w.raw & SHMI_maxGeneration;
    w.last = w.raw == 0 ? SHMI_GENERATIONS_MOST : (uint32_t)(w.raw >> 18) & SHMI_maxGeneration;
    w.number = (uint32_t)(w.raw >> 36);
    return w;
}
SHMI_FN int shmi_window_legal(const shmi_window *w) { return w->first != 0 && w->first <= w->last; }
SHMI_FN int shmi_window_has(const shmi_window *w, uint32_t g) { return w->first <= g && g <= w->last; }
SHMI_FN uint32_t shmi_window_heirs(const shmi_window *w)
{
    uint32_t half = (w->last - w->first + 1) / 2;
    return half < SHMI_HEIRS_LEFT ? half : SHMI_HEIRS_LEFT;
}

SHMI_FN int shmi_untouched(shmsync_arena *a, uint32_t i)
{
    uint64_t bit;
    for (bit = 0; bit < SHMI_touchedBits; bit += 64)
        if (shmi_ld64(shmi_touched_word(a, i, bit)) != 0)
            return 0;
    return 1;
}
/* Whether all traces of the earlier participants of slot i are removed. The slot is free, in state w. */
SHMI_FN int shmi_cleaned(shmsync_arena *a, uint32_t i, uint32_t w)
{
    return shmi_ld32(shmi_slot32(a, i, SHMI_slotReclaimed)) == shmi_slot_gen(w) && shmi_untouched(a, i);
}
/* Whether a joiner may take slot i with the first generation of the window win. The slot is free, and its state w has a
 * generation of an earlier window: see mayEnter in internal/arenakernel/window.go. */
SHMI_FN int shmi_may_enter(shmsync_arena *a, uint32_t i, uint32_t w, const shmi_window *win)
{
    uint32_t r = shmi_ld32(shmi_slot32(a, i, SHMI_slotReclaimed));
    return (r == shmi_slot_gen(w) || r == win->first - 1) && shmi_untouched(a, i);
}
/* The generation of the next participant that takes slot i, free or dead in state w. *raw is the window to which this
 * generation belongs. The result is 0 if the generations of the slot are used up. inherit says that the slot's
 * participant is dead. */
SHMI_FN uint32_t shmi_next_generation(shmsync_arena *a, uint32_t i, uint32_t w, int inherit, uint64_t *raw)
{
    shmi_window win = shmi_window_of(a, i);
    uint32_t g = shmi_slot_gen(w), left;
    *raw = win.raw;
    if (!shmi_window_legal(&win))
        return 0;
    if (!shmi_window_has(&win, g))
        /* If inherit is set, a peer has overwritten the window: a correct process records a window only for a free
         * slot. */
        return inherit || !shmi_may_enter(a, i, w, &win) ? 0 : win.first;
    left = win.last - g;
    if (left > shmi_window_heirs(&win) || (left > 0 && (inherit || !shmi_cleaned(a, i, w))))
        return g + 1;
    return 0;
}
/* Whether slot i, in state w, is free and has no generation left. */
SHMI_FN int shmi_used_up(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint64_t raw;
    return shmi_slot_phase(w) == SHMI_phaseFree && shmi_next_generation(a, i, w, 0, &raw) == 0;
}

/* A search of the arena for IDs that contain one of the slots in the array slots. It notes the generations in these
 * IDs. Bytes that may be an ID count as an ID. */
typedef struct shmi_id_search {
    uint32_t n, slots[SHMI_RENEW_MOST];
    uint8_t place[SHMI_MaxSlots + 1]; /* for each slot of the arena, its index in slots plus 1; 0 if it is not in slots */
    uint64_t *found;                  /* for each slot, the set of the generations that were found */
} shmi_id_search;
enum { SHMI_GENERATION_WORDS = (SHMI_maxGeneration + 1) / 64 };

SHMI_FN void shmi_found_generation(shmi_id_search *s, uint32_t k, uint32_t g)
{
    s->found[(size_t)k * SHMI_GENERATION_WORDS + g / 64] |= UINT64_C(1) << (g % 64);
}
SHMI_FN void shmi_found_id(shmi_id_search *s, shmi_participant_id n)
{
    uint8_t k = s->place[shmi_id_slot(n)];
    if (k != 0)
        shmi_found_generation(s, k - 1u, shmi_id_gen(n));
}
/* Notes the IDs that w may contain: an ID may be in bits 0..28 or 3..31. */
SHMI_FN void shmi_search_word(shmi_id_search *s, uint32_t w)
{
    if (w != 0) {
        shmi_found_id(s, w & SHMI_NAME_MASK);
        shmi_found_id(s, w >> 3);
    }
}
SHMI_FN void shmi_search_words(shmsync_arena *a, shmi_id_search *s, shmi_off from, shmi_off to)
{
    for (from &= ~(shmi_off)3; from < to; from += 4)
        shmi_search_word(s, shmi_ld32(shmi_u32(a, from)));
}
/* How many bytes of an object's body may contain IDs of participants: all but the records of an undo log, in which
 * users' bytes are. */
SHMI_FN uint64_t shmi_words_before_records(shmsync_arena *a, const shmi_object *o)
{
    uint64_t head = sizeof(shmi_mutex_words) + SHMI_logHead;
    return o->kind == SHMI_KIND_MUTEX && o->size > head && (shmi_ld32(shmi_u32(a, o->body + offsetof(shmi_mutex_words, policy))) & 0xff) == SHMI_POLICY_ROLLBACK ? head : o->size;
}
/* Searches a block, except for the bytes of users in it. */
SHMI_FN void shmi_search_block(shmsync_arena *a, shmi_id_search *s, shmi_off off, uint64_t size, uint32_t w)
{
    shmi_header h;
    if (shmi_block_kind(w) == SHMI_blockFree)
        return;
    shmi_found_id(s, shmi_block_name(w));
    if ((shmi_block_kind(w) == SHMI_blockRaw && !shmi_is_record(w)) || shmi_block_kind(w) == SHMI_blockLogged)
        return;
    if (shmi_block_kind(w) == SHMI_blockObject && shmi_header_at(a, off, &h) == 0) {
        const uint64_t head = 3 * sizeof(uint64_t); /* each cell begins with the words state, seq and next; the item comes after them */
        shmi_off body = h.o.body, end = body + h.o.size;
        uint64_t item;
        shmi_search_words(a, s, end, off + size);
        shmi_search_words(a, s, off, body);
        if (h.o.kind == SHMI_KIND_VALUE || h.o.kind == SHMI_KIND_BLOCK)
            return;
        if (h.o.kind == SHMI_KIND_QUEUE && h.o.size >= sizeof(shmi_queue_words) &&
            (item = shmi_ld64(shmi_u64(a, body + offsetof(shmi_queue_words, item)))) <= h.o.size) {
            shmi_search_words(a, s, body, body + sizeof(shmi_queue_words));
            for (body += sizeof(shmi_queue_words); body + head <= end; body += head + ((item + 7) & ~UINT64_C(7)))
                shmi_search_words(a, s, body, body + head);
            return;
        }
        off = body;
        size = shmi_words_before_records(a, &h.o);
    }
    shmi_search_words(a, s, off, off + size);
}
SHMI_FN void shmi_search_ids(shmsync_arena *a, shmi_id_search *s)
{
    uint64_t i, k;
    for (i = 1; i <= a->geo.slots; i++)
        shmi_search_word(s, shmi_ld32(shmi_slot32(a, (uint32_t)i, SHMI_slotReaper)));
    shmi_search_word(s, shmi_ld32(shmi_u32(a, SHMI_hdrDirLowerer)));
    for (k = 0; k < SHMI_deathRecordCount; k++) /* an ID in an old record must not become the ID of a later participant */
        shmi_search_word(s, shmi_ld32(shmi_u32(a, a->geo.death_record_off + k * SHMI_deathRecordStride + SHMI_deathRecordID)));
    for (i = 0; i < a->geo.chunk_count; i++) {
        uint64_t w = shmi_load_chunk(a, i), n = 0, size = 0;
        shmi_found_id(s, shmi_chunk_name(w));
        if (!shmi_chunk_legal(w, i, a->geo.chunk_count))
            continue;
        switch (shmi_chunk_kind(w)) {
        case SHMI_chunkHead:
            n = 1;
            size = shmi_chunk_number(w) * SHMI_chunkSize;
            break;
        case SHMI_chunkSlab:
        case SHMI_chunkSweeping:
            n = shmi_blocks_of((int)shmi_chunk_number(w));
            size = shmi_class_size[shmi_chunk_number(w)];
            /* The words of a free node keep their values, and another process may still look at them. */
            if (shmi_chunk_number(w) == SHMI_classNode)
                shmi_search_words(a, s, shmi_chunk_off(a, i), shmi_chunk_off(a, i) + SHMI_chunkSize);
            break;
        }
        for (k = 0; k < n; k++)
            shmi_search_block(a, s, shmi_chunk_off(a, i) + k * size, size, shmi_ld32(shmi_block_word(a, i, k)));
    }
}
/* The longest run of generations that are not in set k; 0: there is none. */
SHMI_FN uint32_t shmi_longest_gap(const shmi_id_search *s, uint32_t k, uint32_t *first)
{
    const uint64_t *set = s->found + (size_t)k * SHMI_GENERATION_WORDS;
    uint32_t g, begin = 1, longest = 0;
    for (g = 1; g <= SHMI_GENERATIONS_MOST + 1; g++) {
        if (g <= SHMI_GENERATIONS_MOST && (set[g / 64] >> (g % 64) & 1) == 0)
            continue;
        if (g - begin > longest) {
            longest = g - begin;
            *first = begin;
        }
        begin = g + 1;
    }
    return longest;
}

/* Waits, for each participant, until it is not ending a wait of another participant. Returns 0 if that takes long for
 * one of them. */
SHMI_FN int shmi_each_told(shmsync_arena *a)
{
    uint32_t i;
    int tries;
    for (i = 1; i <= a->geo.slots; i++)
        for (tries = 0; shmi_ld32(shmi_slot32(a, i, SHMI_slotTelling)) != 0 && shmi_current(a, shmi_id_in(i, shmi_slot_state(a, i))); tries++) {
            if (tries == 50)
                return 0;
            sched_yield();
        }
    return 1;
}

/* A slot whose participant is dead and not reaped, or 0. */
SHMI_FN uint32_t shmi_dead_slot(shmsync_arena *a, uint32_t my_slot)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++)
        if (i != my_slot && shmi_slot_phase(shmi_slot_state(a, i)) == SHMI_phaseDead)
            return i;
    return 0;
}

typedef struct shmi_renewal {
    uint32_t crowded;      /* number of slots that got no window, because words contain IDs with too many of their generations */
    const char *postponed; /* why used-up slots could not be renewed, or NULL */
} shmi_renewal;

/* Renews the slots that are used up: gives each slot another window. No word contains an ID with a generation of that
 * window, and no thread is about to act on such an ID. If the result is not 0, the call has renewed slots or has to be
 * repeated, so the caller looks at the slots again. See renewSlots in internal/arenakernel/window.go. */
SHMI_FN int shmi_renew_slots(shmsync_arena *a, uint32_t my_slot, shmi_renewal *r)
{
    shmi_id_search *s;
    uint64_t *before; /* the states and windows of the slots that are used up */
    uint32_t i, k;
    int again = 0;
    r->postponed = NULL;
    for (i = 1; i <= a->geo.slots; i++)
        if (i != my_slot && shmi_used_up(a, i, shmi_slot_state(a, i)))
            break;
    if (i > a->geo.slots)
        return 0;
    s = (shmi_id_search *)calloc(1, sizeof *s);
    before = (uint64_t *)malloc(2 * SHMI_RENEW_MOST * sizeof *before);
    if (s == NULL || before == NULL) {
        r->postponed = "no memory";
        goto out;
    }
    for (i = 1; i <= a->geo.slots && s->n < SHMI_RENEW_MOST; i++) {
        uint32_t w = shmi_slot_state(a, i);
        before[2 * s->n] = w;
        before[2 * s->n + 1] = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
        if (i != my_slot && shmi_used_up(a, i, w) && shmi_cleaned(a, i, w)) {
            s->slots[s->n++] = i;
            s->place[i] = (uint8_t)s->n;
        }
    }
    if (s->n == 0)
        goto out;
    s->found = (uint64_t *)calloc(s->n, SHMI_GENERATION_WORDS * sizeof *s->found);
    if (s->found == NULL) {
        r->postponed = "no memory";
        goto out;
    }
    if (shmi_dead_slot(a, my_slot) != 0) {
        r->postponed = "a participant is dead";
        goto out;
    }
    again = 1;
    for (k = 0; k < s->n; k++)
        shmi_found_generation(s, k, shmi_slot_gen((uint32_t)before[2 * k]));
    for (k = 0; k <= SHMI_SEARCHES; k++) {
        if (k > 0)
            shmi_search_ids(a, s);
        if (k < 2 && !shmi_each_told(a)) { /* checked before the first search, too, because that search takes long and would be in vain */
            r->postponed = "a process is in the middle of ending a wait of another, or is stopped there";
            goto out;
        }
    }
    SHMSYNC_CRASHPOINT("arena.renew.searched");
    for (i = 1; i <= a->geo.slots; i++)
        for (k = 0; k < SHMI_actWords; k++)
            shmi_found_id(s, shmi_ld32(shmi_slot32(a, i, SHMI_slotActs + k * 4)) & SHMI_NAME_MASK);
    if (shmi_dead_slot(a, my_slot) != 0) {
        r->postponed = "a participant has died";
        goto out;
    }
    again = 0;
    r->crowded = 0;
    for (k = 0; k < s->n; k++) {
        uint64_t old = before[2 * k + 1];
        uint32_t first = 0, n = shmi_longest_gap(s, k, &first);
        if (n < SHMI_WINDOW_LEAST) {
            r->crowded++;
            continue;
        }
        again = 1;
        /* If another process has renewed the slot, its window has another number, so the CAS fails. */
        if (shmi_slot_state(a, s->slots[k]) == (uint32_t)before[2 * k] &&
            shmi_cas64(shmi_slot64(a, s->slots[k], SHMI_slotWindow), old,
                       shmi_make_window(first, first + n - 1, ((uint32_t)(old >> 36) + 1) & ((1u << 28) - 1))))
            SHMSYNC_CRASHPOINT("arena.renew.recorded");
    }
out:
    if (s != NULL)
        free(s->found);
    free(s);
    free(before);
    return again;
}

/* Renews the slots other than this joiner's: see renewOthers in internal/arenakernel/window.go. */
SHMI_FN void shmi_renew_others(shmsync_arena *a)
{
    shmi_renewal renewal;
    uint32_t i, rounds;
    if (shmi_id_gen(a->self) % SHMI_RENEW_EVERY != 0)
        for (i = 1; i <= a->geo.slots; i++) {
            uint32_t w = shmi_slot_state(a, i);
            if (i != a->my_slot && shmi_slot_phase(w) == SHMI_phaseFree && !shmi_used_up(a, i, w))
                return;
        }
    for (rounds = 1 + a->geo.slots / SHMI_RENEW_MOST; rounds > 0; rounds--)
        if (!shmi_renew_slots(a, a->my_slot, &renewal) || renewal.postponed != NULL)
            return;
}
