
/* ---- Records that any process carries out: prims/record_log.go in C ---- */

/* The commit word in the logged form; see prims/counter_word.go. */
#define SHMI_COUNTER_WATCHED UINT64_C(1)
#define SHMI_COUNTER_LOGGED (UINT64_C(1) << 63)
#define SHMI_COUNTER_VERSIONS ((UINT64_C(1) << 51) - 1)
SHMI_FN uint64_t shmi_min(uint64_t x, uint64_t y) { return x < y ? x : y; }
SHMI_FN int shmi_counter_is_logged(uint64_t c) { return (c & SHMI_COUNTER_LOGGED) != 0; }
SHMI_FN uint32_t shmi_counter_slot_of(uint64_t c) { return (uint32_t)(c >> 1) & 0x7ff; }
SHMI_FN uint64_t shmi_counter_version_of(uint64_t c) { return c >> 12 & SHMI_COUNTER_VERSIONS; }
SHMI_FN uint64_t shmi_counter_bare(uint64_t c) { return c & ~SHMI_COUNTER_WATCHED; }
/* The value of a tagged word. */
SHMI_FN uint64_t shmi_value_of(uint64_t *w) { return shmi_ld64(w) >> 32; }

enum { SHMI_recordEntries = 17 }; /* the most words that one record changes */

/* This process's side of an object whose records change several words at once. */
struct shmi_records {
    uint64_t *commit, *tickets;
    uint64_t *(*tagged)(struct shmi_records *r, uint32_t index);               /* finds a tagged word; NULL if there is none */
    /* returns the head of the record in a slot, behind which *n entries follow; NULL if there is none */
    uint64_t *(*record)(struct shmi_records *r, uint32_t slot, uint32_t *n);
    int (*corrupt)(struct shmi_records *r, const char *how);
};

/* Carries out the record that the commit word c names, unless another process has done so. */
SHMI_FN int shmi_records_complete(struct shmi_records *r, uint64_t c)
{
    uint64_t version = shmi_counter_version_of(c), *head;
    uint32_t n, i;
    if (!shmi_counter_is_logged(c))
        return 0;
    head = r->record(r, shmi_counter_slot_of(c), &n);
    if (head == NULL)
        return r->corrupt(r, "its record is that of a slot that there is not");
    for (i = 0; i < n; i++) {
        uint64_t entry = shmi_ld64(&head[1 + i]), *w, was;
        if (shmi_ld64(head) != version || entry >> 32 == 0)
            return 0; /* the record has no more entries, or its author has begun its next record, and so has changed the head */
        w = r->tagged(r, (uint32_t)(entry >> 32));
        if (w == NULL)
            return r->corrupt(r, "a record changes a word that there is not");
        while (was = shmi_ld64(w), (uint32_t)was != (uint32_t)version) {
            /* No process replaces c in the commit word before each word of the record has the record's tag. So if the
             * commit word is still c, the variable was contains the content that this word had before the record. */
            if (shmi_counter_bare(shmi_ld64(r->commit)) != shmi_counter_bare(c))
                return 0;
            if (shmi_cas64(w, was, entry << 32 | (uint32_t)version)) {
                SHMSYNC_CRASHPOINT("counter.commit.begun");
                break;
            }
        }
    }
    return 0;
}

/* A change that will become a record. */
typedef struct shmi_record_change {
    uint32_t n;
    uint64_t entry[SHMI_recordEntries];
} shmi_record_change;
SHMI_FN void shmi_record_set(shmi_record_change *ch, uint32_t index, uint64_t value) { ch->entry[ch->n++] = (uint64_t)index << 32 | (uint32_t)value; }
/* Adds the word with this index to the change, unless its value stays the same. */
SHMI_FN void shmi_record_differ(shmi_record_change *ch, uint32_t index, uint64_t from, uint64_t to)
{
    if ((uint32_t)from != (uint32_t)to)
        shmi_record_set(ch, index, to);
}

/* Sets *out to a new ticket that is not yet the tag of any word of the change. Fails if the tickets do not advance. */
SHMI_FN int shmi_records_new_version(struct shmi_records *r, const shmi_record_change *ch, uint64_t *out)
{
    int tries;
    for (tries = 0; tries < 2 * SHMI_recordEntries; tries++) {
        uint64_t v = (shmi_add64(r->tickets, 1) + 1) & SHMI_COUNTER_VERSIONS;
        int used = v == 0;
        uint32_t i;
        for (i = 0; i < ch->n; i++) {
            uint64_t *w = r->tagged(r, (uint32_t)(ch->entry[i] >> 32));
            if (w == NULL)
                return r->corrupt(r, "a share is that of a slot that there is not");
            used |= (uint32_t)shmi_ld64(w) == (uint32_t)v;
        }
        if (!used) {
            *out = v;
            return 0;
        }
    }
    return r->corrupt(r, "its tickets do not advance");
}
/* Makes the change ch, which replaces the commit word c. The caller has the private lock, and the record that c names
 * is complete. *ok is 0 if the commit word is no longer c. */
SHMI_FN int shmi_records_commit(struct shmi_records *r, uint32_t slot, uint64_t c, const shmi_record_change *ch, int *ok)
{
    uint32_t n, i;
    uint64_t version = 0, to, *head = r->record(r, slot, &n);
    int err;
    *ok = 0;
    if (head == NULL || ch->n > n)
        return r->corrupt(r, "this participant has no room for a record");
    err = shmi_records_new_version(r, ch, &version);
    if (err != 0)
        return err;
    __atomic_store_n(head, version, __ATOMIC_RELEASE);
    for (i = 0; i < ch->n; i++)
        __atomic_store_n(&head[1 + i], ch->entry[i], __ATOMIC_RELEASE);
    if (ch->n < n)
        __atomic_store_n(&head[1 + ch->n], 0, __ATOMIC_RELEASE);
    SHMSYNC_CRASHPOINT("counter.commit.recorded");
    to = SHMI_COUNTER_LOGGED | version << 12 | (uint64_t)slot << 1 | (c & SHMI_COUNTER_WATCHED);
    if (!shmi_cas64(r->commit, c, to))
        return 0;
    SHMSYNC_CRASHPOINT("counter.commit.named");
    *ok = 1;
    err = shmi_records_complete(r, to);
    SHMSYNC_CRASHPOINT("counter.commit.completed");
    return err;
}
