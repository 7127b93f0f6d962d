/* ---- Objects and the directory of their names ---- */

#define SHMI_GONE UINT64_MAX /* a tombstone */
#define SHMI_OFF_MASK UINT64_C(0xffffffffffff)

SHMI_FN uint32_t shmi_object_phase(uint32_t s) { return s & 7; }
SHMI_FN shmi_participant_id shmi_object_name(uint32_t s) { return s >> 3; }
SHMI_FN uint32_t shmi_make_object(uint32_t phase, shmi_participant_id n) { return phase | n << 3; }
SHMI_FN int shmi_object_there(uint32_t s) { return shmi_object_phase(s) == SHMI_objectCommitted || shmi_object_phase(s) == SHMI_objectDeleting; }
SHMI_FN int shmi_object_legal(uint32_t s)
{
    if (shmi_object_phase(s) == SHMI_objectCommitted)
        return shmi_object_name(s) == 0;
    return shmi_object_phase(s) <= SHMI_objectDeleting && shmi_id_valid(shmi_object_name(s));
}

/* The name of an object in messages. */
SHMI_FN const char *shmi_called(const shmi_object *o) { return o->name_len != 0 ? o->name : "(anonymous)"; }

SHMI_FN uint64_t shmi_open_bytes(const shmsync_arena *a) { return ((uint64_t)a->geo.slots / 32 + 1) * 4; }

SHMI_COLD int shmi_corrupt_object(shmsync_arena *a, shmi_off off, const char *what)
{
    return shmi_fail(EPROTO, "arena.object", a->label, "the object at 0x%llx has an impossible %s", (unsigned long long)off, what);
}
SHMI_COLD int shmi_no_object(shmsync_arena *a, shmi_off off)
{
    return shmi_fail(EINVAL, "arena.object", a->label, "there is no object at offset 0x%llx", (unsigned long long)off);
}

SHMI_FN int shmi_utf8(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t i = 0;
    while (i < n) {
        unsigned c = p[i], more, low;
        if (c < 0x80) {
            i++;
            continue;
        }
        if (c >= 0xc2 && c <= 0xdf)
            more = 1;
        else if (c >= 0xe0 && c <= 0xef)
            more = 2;
        else if (c >= 0xf0 && c <= 0xf4)
            more = 3;
        else
            return 0;
        if (n - i <= more)
            return 0;
        low = p[i + 1];
        if ((c == 0xe0 && low < 0xa0) || (c == 0xed && low > 0x9f) || (c == 0xf0 && low < 0x90) || (c == 0xf4 && low > 0x8f))
            return 0;
        for (i++; more > 0; more--, i++)
            if ((p[i] & 0xc0) != 0x80)
                return 0;
    }
    return 1;
}

/* Reads the header of the object in b, once. The caller guards the block, or has the
 * object open. */
SHMI_FN int shmi_read_header(shmsync_arena *a, const shmi_block *b, shmi_header *h)
{
    uint32_t version = shmi_ld32(shmi_u32(a, b->off + SHMI_objVersion));
    uint64_t name_len = version >> 16;
    uint64_t name_off = shmi_ld32(shmi_u32(a, b->off + SHMI_objNameOff));
    uint64_t open_ = shmi_ld32(shmi_u32(a, b->off + SHMI_objOpenOff));
    uint64_t bits = shmi_open_bytes(a);
    h->block = *b;
    h->state = shmi_u32(a, b->off + SHMI_objState);
    h->o.off = b->off;
    h->o.body = b->off + SHMI_objectHeader;
    h->o.size = shmi_ld64(shmi_u64(a, b->off + SHMI_objSize));
    h->o.kind = shmi_ld32(shmi_u32(a, b->off + SHMI_objKind));
    h->o.version = (uint16_t)version;
    h->o.layout = shmi_ld64(shmi_u64(a, b->off + SHMI_objLayout));
    h->hash = shmi_ld64(shmi_u64(a, b->off + SHMI_objHash));
    h->type_len = shmi_ld32(shmi_u32(a, b->off + SHMI_objTypeLen));
    h->type_off = b->off + name_off + name_len;
    h->open_bits = b->off + open_;
    if (h->o.size > b->size - SHMI_objectHeader)
        return shmi_corrupt_object(a, b->off, "size");
    if (open_ < SHMI_objectHeader + h->o.size || open_ % 4 != 0 || open_ > b->size || bits > b->size - open_)
        return shmi_corrupt_object(a, b->off, "place of its open bits");
    if (name_len > SHMI_maxObjectName || name_off < open_ + bits || name_off > b->size || name_len > b->size - name_off)
        return shmi_corrupt_object(a, b->off, "place of its name");
    if (h->type_len > b->size - name_off - name_len)
        return shmi_corrupt_object(a, b->off, "length of the description of its type");
    memcpy(h->o.name, shmi_bytes(a, b->off + name_off, name_len), name_len);
    h->o.name[name_len] = 0;
    h->o.name_len = (uint16_t)name_len;
    if (!shmi_utf8(h->o.name, name_len) || h->hash != shmi_fnv(h->o.name, name_len))
        return shmi_corrupt_object(a, b->off, "name");
    return 0;
}

/* Reads the header of the object at off, which the caller guards. */
SHMI_FN int shmi_header_at(shmsync_arena *a, shmi_off off, shmi_header *h)
{
    shmi_block b, now;
    if (shmi_locate(a, off, &b) && shmi_ld32(b.word) == shmi_make_block(SHMI_blockObject, 0) && shmi_locate(a, off, &now) &&
        now.size == b.size && now.word == b.word)
        return shmi_read_header(a, &b, h);
    return shmi_no_object(a, off);
}

SHMI_FN int shmi_complete_object(shmsync_arena *a, shmi_off off)
{
    const shmi_kind_ops *ops;
    shmi_header h;
    if (off == 0 || shmi_header_at(a, off, &h) != 0 || !shmi_object_there(shmi_ld32(h.state)))
        return 1; /* the object is deleted, and its queue of waits, too */
    ops = shmi_kind_of(&h.o);
    return ops != NULL && (ops->complete == NULL || ops->complete(a, &h.o));
}

SHMI_FN uint32_t *shmi_open_bit(shmsync_arena *a, const shmi_header *h, uint32_t slot, uint32_t *mask)
{
    *mask = 1u << slot % 32;
    return shmi_u32(a, h->open_bits + slot / 32 * 4);
}

/* ---- Guards ---- */

SHMI_FN int shmi_guarded(shmsync_arena *a, shmi_off off)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++) {
        if (shmi_ld64(shmi_slot64(a, i, SHMI_slotOpening)) != off && shmi_ld64(shmi_slot64(a, i, SHMI_slotWalking)) != off)
            continue;
        if (shmi_current(a, shmi_id_in(i, shmi_slot_state(a, i))))
            return 1;
    }
    return 0;
}

/* ---- Slot records and blocks, the memory of an object outside its body: internal/arenakernel/slotrecord.go ----
 *
 * A slot record belongs to a slot. A block is memory that a participant has added because the object needed more room.
 * Both are on one list of the object. A slot record has the number 0. The number of a block is greater by 1 than that
 * of the next block on the list, so the numbers of the blocks fall along the list. */

/* The block word of a slot record, or of a block of an object: a raw block with an ID of generation 0. */
SHMI_FN uint32_t shmi_record_word(uint32_t slot) { return shmi_make_block(SHMI_blockRaw, shmi_make_participant_id(slot, 0)); }
SHMI_FN int shmi_is_record(uint32_t w) { return shmi_block_kind(w) == SHMI_blockRaw && shmi_block_name(w) != 0; }

/* A walk through the list of an object, the latest record or block first. */
typedef struct shmi_record_walk {
    shmi_off object, next;
    uint64_t size;   /* least size that each record or block must have */
    shmi_block b;    /* the record or block that the walk has reached */
    uint32_t slot;   /* the slot of the record, or of the participant that added the block */
    uint32_t number; /* number of the block; 0: a slot record */
    uint32_t least;  /* number of the last block that the walk has met; 0: none yet */
    int bad;         /* the list has something on it that is neither a slot record nor a block */
    uint32_t seen[SHMI_MaxSlots / 32 + 1];
} shmi_record_walk;
/* Begins a walk at head, which is a value of the word objRecords. */
SHMI_FN void shmi_walk_records_from(shmi_record_walk *v, shmi_off object, uint32_t head, uint64_t size)
{
    memset(v, 0, sizeof *v);
    v->object = object;
    v->size = size;
    v->next = (shmi_off)head * SHMI_blockMin;
}
SHMI_FN void shmi_walk_records(shmsync_arena *a, shmi_record_walk *v, shmi_off object, uint64_t size)
{
    shmi_walk_records_from(v, object, shmi_ld32(shmi_u32(a, object + SHMI_objRecords)), size);
}
/* Goes to the next record or block of the walk. Its maker may not have published it yet. Even on a damaged list the
 * walk ends: it stops at a second record of a slot, and at a block whose number is not below that of the last block. */
SHMI_FN int shmi_next_listed(shmsync_arena *a, shmi_record_walk *v)
{
    uint32_t w;
    if (v->next == 0)
        return 0;
    v->bad = 1;
    if (!shmi_locate(a, v->next, &v->b) || v->b.class_ == SHMI_classNode)
        return 0;
    v->slot = shmi_ld32(shmi_u32(a, v->b.off + SHMI_recordSlot));
    v->number = shmi_ld32(shmi_u32(a, v->b.off + SHMI_recordNumber));
    if (v->slot < 1 || v->slot > a->geo.slots || shmi_ld64(shmi_u64(a, v->b.off + SHMI_recordObject)) != v->object)
        return 0;
    if (v->number == 0 ? (v->seen[v->slot / 32] & 1u << v->slot % 32) != 0 : v->least != 0 && v->number >= v->least)
        return 0;
    w = shmi_ld32(v->b.word);
    if (w != shmi_record_word(v->slot) && (shmi_block_kind(w) != SHMI_blockClaimed || shmi_id_slot(shmi_block_name(w)) != v->slot))
        return 0;
    if (v->number == 0)
        v->seen[v->slot / 32] |= 1u << v->slot % 32;
    else
        v->least = v->number;
    v->next = shmi_ld64(shmi_u64(a, v->b.off + SHMI_recordNext));
    v->bad = 0;
    return 1;
}
/* Whether the record or block that the walk has reached has at least the size v->size. If not, the walk is bad. */
SHMI_FN int shmi_listed_fits(shmi_record_walk *v)
{
    v->bad |= v->b.size < v->size;
    return !v->bad;
}
/* Goes to the next slot record of the walk. */
SHMI_FN int shmi_next_record(shmsync_arena *a, shmi_record_walk *v)
{
    while (shmi_next_listed(a, v))
        if (v->number == 0)
            return shmi_listed_fits(v);
    return 0;
}
/* Goes to the next block of the walk that was added since the word objRecords had the value of the parameter until. If
 * the list does not contain the entry that this value names, the walk is bad. */
SHMI_FN int shmi_next_added(shmsync_arena *a, shmi_record_walk *v, uint32_t until)
{
    while (v->next != (shmi_off)until * SHMI_blockMin)
        if (!shmi_next_listed(a, v)) {
            v->bad = 1;
            return 0;
        } else if (v->number != 0) {
            return shmi_listed_fits(v);
        }
    return 0;
}

/* Returns the number for a block that is pushed on a list. The parameter first, a value of the word objRecords, names
 * the first entry of the list. Returns 0 if the numbers are used up. */
SHMI_FN uint32_t shmi_next_number(shmsync_arena *a, shmi_off object, uint32_t first)
{
    shmi_record_walk v;
    shmi_walk_records_from(&v, object, first, 0);
    while (shmi_next_listed(a, &v))
        if (v.number != 0)
            return v.number == UINT32_MAX ? 0 : v.number + 1;
    return v.bad ? 0 : 1;
}
/* Claims a block for the list of o, in the part of the arena that the word objRecords can name. If the parameter exists
 * is not 0, the block may lie in the headroom. The first slot record of an object must not lie there, because a
 * participant could use the headroom up by creating objects. */
SHMI_FN int shmi_claim_listed(shmsync_arena *a, const shmi_object *o, uint64_t size, int exists, shmi_off *off)
{
    int cls = shmi_class_for(size, 1);
    int err = cls < SHMI_classNode ? shmi_claim_zeroed(a, cls, SHMI_roomOfLinked, off) : shmi_claim_span(a, size, SHMI_roomOfLinked, off);
    if (err == ENOSPC && exists && a->geo.headroom_records > 0) {
        int small = cls <= SHMI_classHeadroom;
        if (small)
            err = shmi_claim_zeroed(a, cls = SHMI_classHeadroom, SHMI_roomOfRecords, off);
        if (cls == SHMI_classNode)
            err = shmi_no_space(a, size, SHMI_roomOfLarge);
        else if (err == ENOSPC && (!small || a->geo.headroom_large > 0))
            err = shmi_claim_zeroed(a, cls, SHMI_roomOfLarge, off);
    }
    if (err != 0)
        return err;
    shmi_st64(shmi_u64(a, *off + SHMI_recordObject), o->off);
    shmi_st32(shmi_u32(a, *off + SHMI_recordSlot), a->my_slot);
    return 0;
}
/* Pushes the block at off on the list of o: as a slot record if the parameter numbered is 0, otherwise as a block with
 * a number. If the entry that the parameter first names is not the first of the list any more, the function frees a
 * numbered block instead of pushing it. */
SHMI_FN int shmi_push_listed(shmsync_arena *a, const shmi_object *o, shmi_off off, int numbered, uint32_t first)
{
    uint32_t *head = shmi_u32(a, o->off + SHMI_objRecords), number = 0;
    int pushed;
    shmi_block b;
    SHMSYNC_CRASHPOINT("arena.slotrecord.claimed");
    do {
        if (!numbered)
            first = shmi_ld32(head);
        if (numbered && (number = shmi_next_number(a, o->off, first)) == 0) {
            shmi_unclaim(a, off);
            return shmi_fail(EPROTO, "arena.record", shmi_called(o), "its list of slot records");
        }
        shmi_st32(shmi_u32(a, off + SHMI_recordNumber), number);
        shmi_st64(shmi_u64(a, off + SHMI_recordNext), (uint64_t)first * SHMI_blockMin);
        SHMSYNC_CRASHPOINT("arena.slotrecord.before_push");
        pushed = shmi_cas32(head, first, (uint32_t)(off / SHMI_blockMin));
        if (!pushed && numbered) {
            shmi_unclaim(a, off);
            return 0;
        }
    } while (!pushed);
    SHMSYNC_CRASHPOINT("arena.slotrecord.pushed");
    if (!shmi_locate(a, off, &b) || !shmi_block_swap(&b, shmi_make_block(SHMI_blockClaimed, a->self), shmi_record_word(a->my_slot)))
        return shmi_meddled(a, off);
    return 0;
}
/* Finds or makes the slot record of o for this process's slot, of at least size bytes. The caller has o open, and holds
 * a->handles_of. */
SHMI_FN int shmi_slot_record(shmsync_arena *a, const shmi_object *o, uint64_t size, shmi_off *off)
{
    shmi_record_walk v;
    int err;
    shmi_walk_records(a, &v, o->off, size);
    while (shmi_next_record(a, &v))
        if (v.slot == a->my_slot) {
            *off = v.b.off;
            return 0;
        }
    if (v.bad)
        return shmi_fail(EPROTO, "arena.record", shmi_called(o), "its list of slot records");
    err = shmi_claim_listed(a, o, size, shmi_ld32(shmi_u32(a, o->off + SHMI_objRecords)) != 0, off);
    return err != 0 ? err : shmi_push_listed(a, o, *off, 0, 0);
}
/* Makes a slot record of o for this process, which visits o in a reap and has not opened it. Returns 0 if there is no
 * room, or another thread holds a->handles_of. */
SHMI_FN int shmi_record_of_reaper(shmsync_arena *a, const shmi_object *o, uint64_t size)
{
    shmi_off record;
    int err;
    if (pthread_mutex_trylock(&a->handles_of) != 0)
        return 0;
    err = shmi_slot_record(a, o, size, &record);
    pthread_mutex_unlock(&a->handles_of);
    return err == 0;
}
/* The length of an array of a handle that has a place for each slot. It is a power of two, so that there are few
 * sizes: each size of handles and arrays has spare memory of its own. */
SHMI_FN size_t shmi_slot_places(shmsync_arena *a)
{
    size_t n = 16;
    while (n < a->geo.slots)
        n *= 2;
    return n;
}
/* What a handle remembers of a list that it has read: the first record, and in bit 32 whether the list is corrupt.
 * Threads may read the list at the same time, so both are in one word. */
SHMI_FN uint64_t shmi_known_list(uint32_t head, const shmi_record_walk *v) { return head | (uint64_t)(v->bad != 0) << 32; }
SHMI_FN int shmi_known_bad(uint64_t known) { return known >> 32 != 0; }
/* The value of the word objRecords of o: the first record or block of its list. */
SHMI_FN uint32_t shmi_records_head(shmsync_arena *a, const shmi_object *o) { return shmi_ld32(shmi_u32(a, o->off + SHMI_objRecords)); }
/* Adds a block of at least size bytes to o, which the caller has open. The 4 bytes behind the header of the block get
 * the value of the parameter tag, and the other bytes are 0. The parameter head is the value that the word objRecords
 * had before the caller found that o needs a block. If the word has another value by now, another call may have added
 * the block. Then this function adds nothing and returns 0. */
SHMI_FN int shmi_add_block(shmsync_arena *a, const shmi_object *o, uint64_t size, uint32_t tag, uint32_t head)
{
    shmi_off off;
    int err = shmi_claim_listed(a, o, size, 0, &off);
    if (err != 0)
        return shmi_records_head(a, o) != head ? 0 : err;
    shmi_st32(shmi_u32(a, off + SHMI_slotRecordHeader), tag);
    return shmi_push_listed(a, o, off, 1, head);
}

/* Publishes a block that a dead participant had claimed, if that participant had pushed it on the list of an object, as
 * a slot record or as a numbered block. Returns 0 if it had not. A claimed block may contain any bytes: only the list
 * of the object says what the block is. If a peer has damaged the list, a handle may still use a record that is not on
 * the list any more, so a block that may belong to that list is kept. The caller is the reaper of the dead participant,
 * and holds a->handles. */
SHMI_FN int shmi_keep_record(shmsync_arena *a, const shmi_block *b, uint32_t w)
{
    shmi_off object = shmi_ld64(shmi_u64(a, b->off + SHMI_recordObject));
    shmi_record_walk v;
    shmi_block o, now;
    int kept = 0;
    if (!shmi_locate(a, object, &o) || o.class_ == SHMI_classNode)
        return 0;
    /* A process that deletes the object sets its block to freeing, checks for guards, publishes the records, and then
     * frees them. So either that process sees this guard, or it publishes this block, or this process sees that the
     * object is gone. Another process may set the object to freeing at any time, so this function decides by one load
     * of its block word. */
    shmi_guard(a, object);
    if (shmi_locate(a, object, &now) && now.word == o.word && now.size == o.size) {
        uint32_t kind = shmi_block_kind(shmi_ld32(o.word));
        shmi_walk_records(a, &v, object, 0);
        while ((kind == SHMI_blockObject || kind == SHMI_blockFreeing) && !kept && shmi_next_listed(a, &v))
            kept = v.b.off == b->off;
        if (v.bad && kind == SHMI_blockObject) {
            shmi_walk_records(a, &v, object, 0);
            v.next = b->off;
            kept = shmi_next_listed(a, &v);
        }
        if (kept)
            shmi_block_swap(b, w, shmi_record_word(v.slot));
    }
    shmi_unguard(a);
    return kept;
}
/* Publishes the records and blocks on the list of an object that is being freed: if their makers died, their reapers
 * may not have published them yet. */
SHMI_FN void shmi_publish_records(shmsync_arena *a, shmi_off object)
{
    shmi_record_walk v;
    shmi_walk_records(a, &v, object, 0);
    while (shmi_next_listed(a, &v)) {
        uint32_t w = shmi_ld32(v.b.word);
        if (shmi_block_kind(w) == SHMI_blockClaimed)
            shmi_block_swap(&v.b, w, shmi_record_word(v.slot));
    }
}
typedef struct shmi_listed {
    shmi_block b;
    uint32_t word;
} shmi_listed;
/* Walks the list of an object, and stores the last entries of the list in the array last. The parameter room is the
 * number of places in this array. Entry number n of the list is at place n modulo room. Returns how many entries the
 * list has. */
SHMI_FN uint64_t shmi_last_listed(shmsync_arena *a, shmi_off object, shmi_listed *last, uint64_t room)
{
    shmi_record_walk v;
    uint64_t n;
    shmi_walk_records(a, &v, object, 0);
    for (n = 0; shmi_next_listed(a, &v) && shmi_ld32(v.b.word) == shmi_record_word(v.slot); n++) {
        last[n % room].b = v.b;
        last[n % room].word = shmi_record_word(v.slot);
    }
    return n;
}
/* Frees the records and blocks on the list of an object whose block is being freed, from the end of the list on. If
 * the call is cut short, another process may repeat it: the list then ends at the first freed block, because that
 * block is no block of this object any more. A list may be very long, so the call asks for memory for all entries. If
 * there is none, it frees a few entries at a time. */
SHMI_FN void shmi_free_records(shmsync_arena *a, shmi_off object)
{
    enum { SHMI_atOnce = 32 };
    shmi_listed few[SHMI_atOnce], *last = few, *all = NULL;
    uint64_t room = SHMI_atOnce, n = shmi_last_listed(a, object, last, room), rounds = n / room + 64, k;
    if (n > room && (all = (shmi_listed *)malloc((size_t)n * sizeof *all)) != NULL) {
        last = all;
        room = n;
        n = shmi_last_listed(a, object, last, room);
    }
    for (;;) { /* another process may make more records meanwhile */
        for (k = 1; k <= n && k <= room; k++) {
            shmi_listed *l = &last[(n - k) % room];
            shmi_release(a, &l->b, l->word); /* changes no block whose word another process has changed since */
            SHMSYNC_CRASHPOINT("arena.slotrecord.freeing");
        }
        if (n <= room || rounds-- == 0)
            break;
        n = shmi_last_listed(a, object, last, room);
    }
    free(all);
}

/* Releases a block that was in the directory, or was an object, as shmi_release does. While a process guards the block,
 * this function only sets it to freeing by this process, and the block is released later. The caller holds
 * a->handles. */
SHMI_FN void shmi_release_unseen(shmsync_arena *a, const shmi_block *b, uint32_t w)
{
    uint32_t freeing = shmi_make_block(SHMI_blockFreeing, a->self);
    /* A claimed block has no records. But if its participant died before it had cleared the bytes, the block may have
     * the bytes of an earlier object, and these may name a record of another object. */
    if (shmi_block_kind(w) == SHMI_blockClaimed)
        shmi_st32(shmi_u32(a, b->off + SHMI_objRecords), 0);
    if (!shmi_guarded(a, b->off)) {
        shmi_free_nodes_at(a, b->off); /* no reaper looks at the nodes any more */
        shmi_publish_records(a, b->off); /* a reaper that has not opened the object may have made one more record */
        shmi_free_records(a, b->off);
        SHMSYNC_CRASHPOINT("arena.delete.nodes_freed");
        shmi_release(a, b, w);
        return;
    }
    shmi_touch(a, b->chunk);
    if (w == freeing || shmi_block_swap(b, w, freeing)) {
        if (a->n_deferred == a->cap_deferred) {
            size_t cap = a->cap_deferred != 0 ? 2 * a->cap_deferred : 16;
            shmi_off *more = (shmi_off *)realloc(a->deferred, cap * sizeof *more);
            if (more == NULL)
                return; /* no memory: the block stays freeing until this process leaves */
            a->deferred = more;
            a->cap_deferred = cap;
        }
        a->deferred[a->n_deferred++] = b->off;
    }
}
/* Releases the blocks in a->deferred that no process guards any more, and returns whether it released one. The caller
 * holds a->handles. */
SHMI_FN int shmi_release_deferred(shmsync_arena *a)
{
    size_t n = a->n_deferred, i;
    shmi_off *waiting = a->deferred;
    a->deferred = NULL;
    a->n_deferred = a->cap_deferred = 0;
    for (i = 0; i < n; i++) {
        shmi_block b;
        if (shmi_locate(a, waiting[i], &b))
            shmi_release_unseen(a, &b, shmi_make_block(SHMI_blockFreeing, a->self));
    }
    free(waiting);
    return a->n_deferred < n;
}
SHMI_FN int shmi_flush_deferred(shmsync_arena *a)
{
    int released;
    pthread_mutex_lock(&a->handles);
    released = shmi_release_deferred(a);
    pthread_mutex_unlock(&a->handles);
    return released;
}

/* ---- Directory ---- */

SHMI_FN int shmi_entry_used(uint64_t e) { return e != 0 && e != SHMI_GONE; }
SHMI_FN uint64_t shmi_make_entry(shmi_off off, uint64_t hash) { return (off & SHMI_OFF_MASK) | (hash & ~SHMI_OFF_MASK); }
SHMI_FN uint64_t *shmi_entry(shmsync_arena *a, uint64_t pos) { return shmi_u64(a, a->geo.dir_off + pos * 8); }
/* How far a search may have to go. While a participant lowers the reach, a search goes as far as the old reach, which
 * is in hdrDirLowering: see internal/arenakernel/directory_lower.go. */
SHMI_FN uint64_t shmi_reach(shmsync_arena *a)
{
    int tries;
    for (tries = 0; tries < 16; tries++) {
        uint64_t w = shmi_ld64(shmi_u64(a, SHMI_hdrDirLowering)), r = shmi_ld32(shmi_u32(a, SHMI_hdrDirReach));
        if ((w >> 32 & 1) != 0 && r < (w & UINT32_MAX))
            r = w & UINT32_MAX;
        if (shmi_ld64(shmi_u64(a, SHMI_hdrDirLowering)) == w)
            return r < a->geo.dir_count ? r : a->geo.dir_count - 1;
    }
    return a->geo.dir_count - 1;
}
SHMI_FN void shmi_raise_reach(shmsync_arena *a, uint64_t k)
{
    uint32_t *reach = shmi_u32(a, SHMI_hdrDirReach), r;
    for (r = shmi_ld32(reach); r < k && !shmi_cas32(reach, r, (uint32_t)k); r = shmi_ld32(reach)) {
    }
}

/* The greatest distance of an entry from the place that its hash selects. An entry whose hash cannot be read counts
 * with the greatest distance possible. */
SHMI_FN uint64_t shmi_furthest(shmsync_arena *a)
{
    uint64_t pos, far = 0;
    shmi_worked(a, a->geo.dir_count);
    for (pos = 0; pos < a->geo.dir_count; pos++) {
        uint64_t *word = shmi_entry(a, pos), e = shmi_ld64(word), distance = a->geo.dir_count - 1;
        shmi_block b;
        if (!shmi_entry_used(e))
            continue;
        shmi_guard(a, e & SHMI_OFF_MASK); /* the guard keeps the block from being reused, so the hash is that of the entry */
        if (shmi_ld64(word) != e)
            continue;
        if (shmi_locate(a, e & SHMI_OFF_MASK, &b) && b.size >= SHMI_objectHeader) {
            uint64_t hash = shmi_ld64(shmi_u64(a, b.off + SHMI_objHash));
            if (hash >> 48 == e >> 48)
                distance = (pos - hash) & (a->geo.dir_count - 1);
        }
        if (distance > far)
            far = distance;
    }
    shmi_unguard(a);
    return far;
}
/* Lowers the reach to the greatest distance of an entry, unless another participant is doing that. The caller holds
 * a->handles. */
SHMI_FN void shmi_lower_reach(shmsync_arena *a)
{
    uint32_t *owner = shmi_u32(a, SHMI_hdrDirLowerer), *reach = shmi_u32(a, SHMI_hdrDirReach);
    uint64_t *word = shmi_u64(a, SHMI_hdrDirLowering), w;
    shmi_participant_id u = shmi_ld32(owner);
    if ((u != a->self && shmi_current(a, u)) || !shmi_take_from32(a, u, owner, u, a->self, 0))
        return;
    w = shmi_ld64(word) >> 32;
    if ((w & 1) == 0) { /* odd: a participant died while it lowered the reach, before its second check of all entries */
        uint32_t r = shmi_ld32(reach);
        uint64_t far;
        shmi_st64(word, (uint64_t)(uint32_t)++w << 32 | r);
        far = shmi_furthest(a);
        if (far < r)
            shmi_cas32(reach, r, (uint32_t)far);
    }
    shmi_raise_reach(a, shmi_furthest(a));
    shmi_st64(word, (uint64_t)(uint32_t)(w + 1) << 32);
    shmi_cas32(owner, a->self, 0);
}
/* Lowers the reach when that is worth its cost: the searches of this process have passed more removed entries than an
 * examination of all entries costs. After an attempt that did not help, more removed entries are needed for the next
 * attempt. The caller holds a->handles. */
SHMI_FN void shmi_lower_reach_if_due(shmsync_arena *a)
{
    uint64_t before, ratio = 2 * a->geo.dir_count;
    if (a->passed <= a->lower_after + ratio)
        return;
    a->passed = 0;
    before = shmi_reach(a);
    shmi_lower_reach(a);
    if (shmi_reach(a) <= before / 2)
        a->lower_after = 0;
    else /* some entry is that far away; it may be removed soon, so the number for the next attempt has a bound */
        a->lower_after = a->lower_after == 0 ? ratio : a->lower_after < 8 * ratio ? 2 * a->lower_after : 8 * ratio;
}

/* Puts the object at off into the directory. Returns 0 if the directory is full. */
SHMI_FN int shmi_place(shmsync_arena *a, shmi_off off, uint64_t hash)
{
    uint64_t mine = shmi_make_entry(off, hash), k;
    for (k = 0; k < a->geo.dir_count; k++) {
        uint64_t *word = shmi_entry(a, (hash + k) & (a->geo.dir_count - 1)), e;
        for (e = shmi_ld64(word); !shmi_entry_used(e); e = shmi_ld64(word)) {
            shmi_raise_reach(a, k);
            if (shmi_cas64(word, e, mine)) {
                shmi_raise_reach(a, k); /* another participant may have lowered the reach before it saw the entry */
                return 1;
            }
        }
    }
    return 0;
}

/* The entry of the object at off, wherever it is; NULL if there is none. */
SHMI_FN uint64_t *shmi_find_entry(shmsync_arena *a, shmi_off off, uint64_t hash)
{
    uint64_t mine = shmi_make_entry(off, hash), k;
    for (k = 0; k < a->geo.dir_count; k++) {
        uint64_t *word = shmi_entry(a, (hash + k) & (a->geo.dir_count - 1)), e = shmi_ld64(word);
        if (e == 0 || e == mine)
            return e != 0 ? word : NULL;
    }
    return NULL;
}

/* Removes the object at off from the directory. */
SHMI_FN void shmi_unlist(shmsync_arena *a, shmi_off off, uint64_t hash)
{
    uint64_t *word = shmi_find_entry(a, off, hash);
    if (word != NULL)
        shmi_cas64(word, shmi_make_entry(off, hash), SHMI_GONE);
}

/* Guards the object of entry e and reads its header. *same says whether the entry is still e; if so, the result is 0
 * or the error of the header. The caller calls shmi_unguard in any case. */
SHMI_FN int shmi_enter_entry(shmsync_arena *a, uint64_t *word, uint64_t e, shmi_header *h, int *same)
{
    shmi_block b;
    shmi_off off = e & SHMI_OFF_MASK;
    *same = 0;
    SHMSYNC_CRASHPOINT("arena.object.found");
    shmi_guard(a, off);
    if (shmi_ld64(word) != e)
        return 0;
    if (shmi_locate(a, off, &b)) {
        uint32_t kind = shmi_block_kind(shmi_ld32(b.word));
        if (kind == SHMI_blockClaimed || kind == SHMI_blockObject || kind == SHMI_blockFreeing) {
            int err = shmi_read_header(a, &b, h);
            SHMSYNC_CRASHPOINT("arena.object.entered");
            *same = err == 0;
            return err;
        }
    }
    return shmi_fail(EPROTO, "arena.object", a->label, "a name leads to 0x%llx, where there is no object", (unsigned long long)off);
}

SHMI_FN shmi_ref **shmi_refs_at(shmsync_arena *a, shmi_off off) /* guarded by: handles */
{
    /* Fibonacci hashing: the offsets of blocks of one size class differ in few bits, and still get different lists. */
    return &a->refs[off * UINT64_C(0x9e3779b97f4a7c15) >> (64 - a->refs_log)];
}
/* The place in the table of the reference to the object at off, or the place where it would be added; NULL if there is
 * no table. */
SHMI_FN shmi_ref **shmi_ref_place(shmsync_arena *a, shmi_off off) /* guarded by: handles */
{
    shmi_ref **p;
    if (a->refs == NULL)
        return NULL;
    for (p = shmi_refs_at(a, off); *p != NULL && (*p)->h.o.off != off; p = &(*p)->next)
        a->refs_passed++;
    return p;
}
SHMI_FN shmi_ref *shmi_ref_of(shmsync_arena *a, shmi_off off) /* guarded by: handles */
{
    shmi_ref **p = shmi_ref_place(a, off);
    return p != NULL ? *p : NULL;
}
/* Makes room in the table for one more reference, so that its lists stay short. Returns 0 if there is no memory. */
SHMI_FN int shmi_grow_refs(shmsync_arena *a) /* guarded by: handles */
{
    uint32_t log = a->refs != NULL ? a->refs_log : 0, i;
    shmi_ref **before = a->refs, **more, *r, *next, **p;
    if (before != NULL && a->n_refs >> log == 0)
        return 1;
    more = (shmi_ref **)calloc((size_t)1 << (before != NULL ? log + 1 : 4), sizeof *more);
    if (more == NULL)
        return before != NULL;
    a->refs = more;
    a->refs_log = before != NULL ? log + 1 : 4;
    for (i = 0; before != NULL && i < UINT32_C(1) << log; i++)
        for (r = before[i]; r != NULL; r = next) {
            next = r->next;
            p = shmi_refs_at(a, r->h.o.off);
            r->next = *p;
            *p = r;
        }
    free(before);
    return 1;
}

/* Makes the reference for one more open object, or returns NULL if there is no memory. The caller does this before it
 * opens or publishes the object, because afterwards only the close of a reference clears the open bit. */
SHMI_FN shmi_ref *shmi_new_ref(shmsync_arena *a, const shmi_header *h) /* guarded by: handles */
{
    shmi_ref *r = shmi_grow_refs(a) ? (shmi_ref *)calloc(1, sizeof *r) : NULL;
    if (r == NULL)
        shmi_fail(ENOMEM, "arena.open_object", shmi_called(&h->o), "%s", "");
    return r;
}
/* Notes in r that this process has h open. */
SHMI_FN void shmi_remember(shmsync_arena *a, shmi_ref *r, const shmi_header *h, int kept) /* guarded by: handles */
{
    shmi_ref **p;
    r->h = *h;
    r->count = 1;
    r->kept = kept;
    p = shmi_refs_at(a, h->o.off);
    r->next = *p;
    *p = r;
    a->n_refs++;
}

SHMI_FN int shmi_unfinished(shmsync_arena *a, shmi_participant_id dead);

/* Closes one opening of the object at off. Returns 0 if this process has not opened it. */
SHMI_FN int shmi_forget(shmsync_arena *a, shmi_off off) /* guarded by: handles */
{
    shmi_ref **p = shmi_ref_place(a, off), *r = p != NULL ? *p : NULL;
    if (r == NULL)
        return 0;
    if (--r->count == 0) {
        uint32_t mask, *word = shmi_open_bit(a, &r->h, a->my_slot, &mask);
        if (!r->kept || !shmi_unfinished(a, a->self)) /* else the undo of a transaction may still write there */
            shmi_and32(word, ~mask);
        *p = r->next;
        a->n_refs--;
        free(r);
    }
    return 1;
}

/* Opens the object h, which the caller guards. *there is 0 if the object does not exist yet, or not any more. */
SHMI_FN int shmi_adopt(shmsync_arena *a, shmi_header *h, int *there)
{
    shmi_ref *ref = shmi_ref_of(a, h->o.off), *made;
    uint32_t mask, *word;
    int tries, kept;
    *there = 0;
    if (ref != NULL) {
        ref->count++;
        *there = 1;
        return 0;
    }
    made = shmi_new_ref(a, h);
    if (made == NULL)
        return ENOMEM;
    shmi_touch(a, h->block.chunk);
    word = shmi_open_bit(a, h, a->my_slot, &mask);
    kept = (shmi_or32(word, mask) & mask) != 0;
    SHMSYNC_CRASHPOINT("arena.object.bit_set");
    for (tries = 0; tries < SHMI_claimTries * SHMI_timeout; tries++) {
        uint32_t s = shmi_ld32(h->state);
        if (tries >= SHMI_claimTries)
            sched_yield();
        if (!shmi_object_legal(s))
            break;
        if (shmi_object_phase(s) == SHMI_objectDeleting) {
            /* The deletion is cancelled. As long as the open bit of this process is set, no other deletion can be
             * decided. */
            SHMSYNC_CRASHPOINT("arena.object.cancelling");
            if (!shmi_cas32(h->state, s, shmi_make_object(SHMI_objectCommitted, 0)))
                continue;
            *there = 1;
        } else if (shmi_object_phase(s) == SHMI_objectCommitted) {
            uint32_t w = shmi_ld32(h->block.word); /* the maker may have died before it published the object */
            if (shmi_block_kind(w) == SHMI_blockClaimed)
                shmi_block_swap(&h->block, w, shmi_make_block(SHMI_blockObject, 0));
            *there = 1;
        } else {
            free(made);
            return 0; /* the open bit stays set, because the memory of the object is freed anyway */
        }
        shmi_remember(a, made, h, kept);
        return 0;
    }
    free(made);
    shmi_and32(word, ~mask);
    return shmi_corrupt_object(a, h->o.off, "phase");
}

/* Aborts h if it is pending. If the parameter wait is not 0 and the maker of h lives, the maker first gets some time to
 * commit h. */
SHMI_FN void shmi_outvote(shmsync_arena *a, shmi_header *h, int wait)
{
    int tries;
    for (tries = 0;; tries++) {
        uint32_t s = shmi_ld32(h->state);
        if (shmi_object_phase(s) != SHMI_objectPending || !shmi_object_legal(s))
            return;
        if (wait && tries < SHMI_timeout && shmi_current(a, shmi_object_name(s))) {
            sched_yield();
            continue;
        }
        shmi_cas32(h->state, s, shmi_make_object(SHMI_objectAborted, shmi_object_name(s)));
        return;
    }
}

/* Finds the object of that name and opens it. The parameter mine is the offset of a new object of that name that the
 * caller has put into the directory, or 0. If mine is not 0, the function aborts pending objects of the name. If it
 * meets such an object before it meets mine, it first waits a little, because the maker may commit the object. The
 * caller holds a->handles. */
SHMI_FN int shmi_seek(shmsync_arena *a, const char *name, size_t len, uint64_t hash, shmi_off mine, shmi_header *h, int *found)
{
    uint64_t reach = shmi_reach(a), k;
    int first = 1;
    *found = 0;
    for (k = 0; k <= reach; k++) {
        uint64_t *word = shmi_entry(a, (hash + k) & (a->geo.dir_count - 1)), e = shmi_ld64(word);
        int same, err;
        uint32_t s;
        if (e == 0)
            return 0;
        if (e == SHMI_GONE)
            a->passed++;
        if (!shmi_entry_used(e) || e >> 48 != hash >> 48)
            continue;
        if (mine != 0 && (e & SHMI_OFF_MASK) == mine) {
            first = 0;
            continue;
        }
        err = shmi_enter_entry(a, word, e, h, &same);
        if (!same) {
            shmi_unguard(a);
            if (err != 0)
                return err;
            continue;
        }
        if (h->hash != hash || h->o.name_len != len || memcmp(h->o.name, name, len) != 0) {
            shmi_unguard(a);
            continue;
        }
        if (mine != 0)
            shmi_outvote(a, h, first);
        s = shmi_ld32(h->state);
        if (!shmi_object_there(s) && shmi_object_legal(s)) {
            shmi_unguard(a);
            continue;
        }
        err = shmi_adopt(a, h, found);
        shmi_unguard(a);
        if (err != 0 || *found)
            return err;
    }
    return 0;
}

SHMI_FN void shmi_resolve_entry(shmsync_arena *a, uint64_t *word, uint64_t e, shmi_participant_id dead)
{
    shmi_block b;
    uint32_t w;
    if (!shmi_locate(a, e & SHMI_OFF_MASK, &b))
        return;
    w = shmi_ld32(b.word);
    if (shmi_block_name(w) != dead || (shmi_block_kind(w) != SHMI_blockClaimed && shmi_block_kind(w) != SHMI_blockFreeing))
        return;
    if (shmi_block_kind(w) == SHMI_blockClaimed) {
        uint32_t *state = shmi_u32(a, b.off + SHMI_objState);
        shmi_cas32(state, shmi_make_object(SHMI_objectPending, dead), shmi_make_object(SHMI_objectAborted, dead));
        if (shmi_object_there(shmi_ld32(state))) {
            shmi_block_swap(&b, w, shmi_make_block(SHMI_blockObject, 0));
            return;
        }
    }
    shmi_cas64(word, e, SHMI_GONE);
}
SHMI_FN void shmi_resolve_guarded(shmsync_arena *a, uint64_t *word, uint64_t e, shmi_participant_id dead)
{
    shmi_guard(a, e & SHMI_OFF_MASK);
    if (shmi_ld64(word) == e)
        shmi_resolve_entry(a, word, e, dead);
    shmi_unguard(a);
}

typedef struct shmi_resolve_arg {
    shmi_participant_id dead;
    int whole; /* a block of the dead participant has an unreadable header: any directory entry may lead to it */
} shmi_resolve_arg;
/* Resolves the entry of the block at off, if the dead participant had claimed the block or was freeing it. */
SHMI_FN int shmi_resolve_name_of(shmsync_arena *a, shmi_off off, void *arg)
{
    shmi_resolve_arg *s = (shmi_resolve_arg *)arg;
    shmi_block b;
    shmi_header h;
    uint64_t *word;
    if (!shmi_locate(a, off, &b) || b.class_ == SHMI_classNode || shmi_block_name(shmi_ld32(b.word)) != s->dead)
        return 1;
    /* An object with a name has its kind and hash before it has an entry, and keeps them until its block is free. This
     * block has neither, so it has no entry. */
    if (shmi_ld32(shmi_u32(a, off + SHMI_objKind)) == 0 && shmi_ld64(shmi_u64(a, off + SHMI_objHash)) == 0)
        return 1;
    if (shmi_read_header(a, &b, &h) != 0) {
        s->whole = 1;
    } else if (h.o.name_len != 0) {
        word = shmi_find_entry(a, off, h.hash);
        if (word != NULL)
            shmi_resolve_guarded(a, word, shmi_make_entry(off, h.hash), s->dead);
    }
    return 1;
}
/* Publishes the objects that a dead participant had committed. Removes the entries of objects that this participant had
 * not committed, or had begun to free. The caller is its reaper, and holds a->handles. */
SHMI_FN void shmi_resolve_entries(shmsync_arena *a, shmi_participant_id dead)
{
    shmi_resolve_arg arg;
    uint64_t pos;
    arg.dead = dead;
    arg.whole = 0;
    shmi_each_block(a, shmi_id_slot(dead), SHMI_blockClaimed, shmi_resolve_name_of, &arg);
    shmi_each_block(a, shmi_id_slot(dead), SHMI_blockFreeing, shmi_resolve_name_of, &arg);
    if (!arg.whole)
        return;
    shmi_worked(a, a->geo.dir_count);
    for (pos = 0; pos < a->geo.dir_count; pos++) {
        uint64_t *word = shmi_entry(a, pos), e = shmi_ld64(word);
        if (shmi_entry_used(e))
            shmi_resolve_guarded(a, word, e, dead);
    }
}

/* ---- Making and opening ---- */

/* Copies the options *given of the program to *own, which has all fields that this version knows. If the program was
 * compiled with an older header, its options have fewer fields, and the other fields of *own are 0. If the header was
 * newer, and the program sets a field that this version lacks, the result is EINVAL. If struct_size is 0, the options
 * have the size that they had in version 0.1: the parameter first. The flags of the options are added to *how. */
SHMI_FN int shmi_take_options(const char *op, const char *name, const void *given, void *own, size_t size, size_t first, uint32_t *how)
{
    const unsigned char *p = (const unsigned char *)given;
    uint32_t head[2];
    size_t n, i;
    memset(own, 0, size);
    memcpy(head, p, sizeof head);
    n = head[0] != 0 ? head[0] : first;
    if (n < sizeof head || n > 4096)
        return shmi_fail(EINVAL, op, name, "struct_size of the options is %u; it is their sizeof, or 0", head[0]);
    for (i = size; i < n; i++)
        if (p[i] != 0)
            return shmi_fail(EINVAL, op, name, "byte %zu of the options is set, and libshmsync " SHMI_LIBRARY " knows %zu bytes of them", i, size);
    memcpy(own, p, n < size ? n : size);
    if ((head[1] & ~(SHMSYNC_CREATE_ONLY | SHMSYNC_OPEN_EXISTING)) != 0)
        return shmi_fail(EINVAL, op, name, "flags of the options are %#x, and of those only %#x have a meaning", head[1], SHMSYNC_CREATE_ONLY | SHMSYNC_OPEN_EXISTING);
    *how |= head[1];
    if ((*how & SHMSYNC_CREATE_ONLY) != 0 && (*how & SHMSYNC_OPEN_EXISTING) != 0)
        return shmi_fail(EINVAL, op, name, "it is to create only, and to open only what exists");
    return 0;
}
/* The first statement of a function that opens an object and has the parameters a, name, opts and existing. After this
 * statement, *opts has all fields, the variable flags has the flags, and existing says whether the function fails with
 * ENOENT if there is no object. The statement sets impl, a field of the handle, to NULL. Only an open that succeeds
 * sets it to another value. */
#define SHMI_OPTIONS(type, first, op, impl)                                                           \
    type own_options;                                                                                 \
    uint32_t flags = existing ? SHMSYNC_OPEN_EXISTING : 0;                                            \
    SHMI_ASSERT(sizeof(type) >= (first), "options only grow");                                        \
    impl = NULL;                                                                                      \
    if (a == NULL)                                                                                    \
        return shmi_no_arena(op, name);                                                               \
    if (opts != NULL) {                                                                               \
        int bad = shmi_take_options(op, name, opts, &own_options, sizeof own_options, first, &flags); \
        if (bad != 0)                                                                                 \
            return bad;                                                                               \
        opts = &own_options;                                                                          \
    }                                                                                                 \
    existing = (flags & SHMSYNC_OPEN_EXISTING) != 0
/* As SHMI_OPTIONS, for the function that opens an arena. */
#define SHMI_ARENA_OPTIONS(name)                                                                            \
    shmsync_arena_options own_options;                                                                      \
    uint32_t how = 0;                                                                                       \
    if (opts != NULL) {                                                                                     \
        int bad = shmi_take_options("arena.open", name, opts, &own_options, sizeof own_options, 104, &how); \
        if (bad != 0)                                                                                       \
            return bad;                                                                                     \
        opts = &own_options;                                                                                \
    }

/* Which object to open, and how to make it. */
typedef struct shmi_spec {
    uint32_t kind;
    uint16_t version;
    int any_size;     /* an existing object may have another size */
    int any_layout;   /* an existing object may have another fingerprint */
    uint32_t flags;   /* SHMSYNC_CREATE_ONLY, SHMSYNC_OPEN_EXISTING, or 0 */
    const char *name; /* NULL or "": a new anonymous object */
    uint64_t size;    /* size of the body */
    uint64_t layout;
    const char *type; /* description of the type; NULL: none */
    /* Fills in the body of a new object, which is all zero. The object may be thrown away afterwards. */
    void (*init)(unsigned char *body, const void *arg);
    const void *arg;
} shmi_spec;

/* Claims a block and makes a complete object of it, which no process can find yet. */
SHMI_FN int shmi_build(shmsync_arena *a, const shmi_spec *spec, size_t len, uint64_t hash, uint32_t state, shmi_header *h)
{
    uint64_t open_ = (SHMI_objectHeader + spec->size + 7) & ~UINT64_C(7), name_off = open_ + shmi_open_bytes(a);
    size_t type = spec->type != NULL ? strlen(spec->type) : 0;
    uint32_t mask, *word;
    shmi_block b;
    shmi_off off;
    int err = shmi_claim(a, name_off + len + type, &off);
    if (err != 0)
        return err;
    shmi_st32(shmi_u32(a, off + SHMI_objKind), spec->kind);
    shmi_st32(shmi_u32(a, off + SHMI_objVersion), spec->version | (uint32_t)len << 16);
    shmi_st32(shmi_u32(a, off + SHMI_objNameOff), (uint32_t)name_off);
    shmi_st64(shmi_u64(a, off + SHMI_objSize), spec->size);
    shmi_st64(shmi_u64(a, off + SHMI_objHash), hash);
    shmi_st64(shmi_u64(a, off + SHMI_objCreated), (uint64_t)shmi_unix_now());
    shmi_st32(shmi_u32(a, off + SHMI_objOpenOff), (uint32_t)open_);
    shmi_st64(shmi_u64(a, off + SHMI_objLayout), spec->layout);
    if (len > 0)
        memcpy(shmi_bytes(a, off + name_off, len), spec->name, len);
    shmi_st32(shmi_u32(a, off + SHMI_objTypeLen), (uint32_t)type);
    if (type > 0)
        memcpy(shmi_bytes(a, off + name_off + len, type), spec->type, type);
    if (spec->init != NULL)
        spec->init(shmi_bytes(a, off + SHMI_objectHeader, spec->size), spec->arg);
    err = shmi_locate(a, off, &b) ? shmi_read_header(a, &b, h) : shmi_meddled(a, off);
    if (err != 0) {
        shmi_unclaim(a, off);
        return err;
    }
    word = shmi_open_bit(a, h, a->my_slot, &mask);
    shmi_or32(word, mask);
    shmi_st32(h->state, state);
    return 0;
}

/* Takes back an object that this process has made and not committed. Other participants may be looking at it. */
SHMI_FN void shmi_withdraw(shmsync_arena *a, shmi_header *h)
{
    shmi_cas32(h->state, shmi_make_object(SHMI_objectPending, a->self), shmi_make_object(SHMI_objectAborted, a->self));
    shmi_unlist(a, h->o.off, h->hash);
    SHMSYNC_CRASHPOINT("arena.object.withdrawing");
    shmi_release_unseen(a, &h->block, shmi_make_block(SHMI_blockClaimed, a->self));
}

/* Makes the object, or opens the object of that name that another participant has made meanwhile; then *found is not
 * 0. EAGAIN: another participant aborted the new object, so the caller searches again. */
SHMI_FN int shmi_create_named(shmsync_arena *a, const shmi_spec *spec, size_t len, uint64_t hash, shmi_header *h, int *found)
{
    uint32_t pending = shmi_make_object(SHMI_objectPending, a->self);
    shmi_header mine, *m = &mine;
    shmi_ref *ref;
    int err = shmi_build(a, spec, len, hash, pending, m);
    *found = 0;
    if (err != 0)
        return err;
    pthread_mutex_lock(&a->handles);
    shmi_release_deferred(a);
    SHMSYNC_CRASHPOINT("arena.object.before_place");
    if (!shmi_place(a, m->o.off, hash)) {
        shmi_withdraw(a, m);
        err = shmi_fail(ENOSPC, "arena.open_object", spec->name, "all %llu names of the directory are in use", (unsigned long long)a->geo.dir_count);
    } else {
        SHMSYNC_CRASHPOINT("arena.object.placed");
        err = shmi_seek(a, spec->name, len, hash, m->o.off, h, found);
        ref = *found || err != 0 ? NULL : shmi_new_ref(a, m);
        if (ref == NULL) {
            shmi_withdraw(a, m);
            err = *found || err != 0 ? err : ENOMEM;
        } else {
            SHMSYNC_CRASHPOINT("arena.object.before_commit");
            if (!shmi_cas32(m->state, pending, shmi_make_object(SHMI_objectCommitted, 0))) {
                free(ref);
                shmi_withdraw(a, m);
                err = EAGAIN;
            } else {
                shmi_remember(a, ref, m, 0);
                SHMSYNC_CRASHPOINT("arena.object.committed");
                if (shmi_publish(a, m->o.off, SHMI_blockObject) != 0 && shmi_block_kind(shmi_ld32(m->block.word)) != SHMI_blockObject)
                    err = EPROTO;
                *h = *m;
            }
        }
    }
    pthread_mutex_unlock(&a->handles);
    return err;
}

/* Undoes one open of the object. The caller need not be within shmi_enter. After this process has given up its slot,
 * the bytes of the open bit may belong to another object, so then the call does nothing. */
SHMI_FN void shmi_close_object(shmsync_arena *a, shmi_off off)
{
    pthread_mutex_lock(&a->handles);
    if (!a->left)
        shmi_forget(a, off);
    pthread_mutex_unlock(&a->handles);
}

SHMI_FN const char *shmi_kind_text(uint32_t kind, char out[5])
{
    int i;
    for (i = 0; i < 4; i++) {
        char c = (char)(kind >> 8 * i & 0xff);
        out[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    out[4] = 0;
    return out;
}

#define SHMI_KIND_PHRASE 40 /* bytes of the name of a kind in a sentence */

/* The name of a kind for use in a sentence, as KindPhrase of internal/arenakernel gives it. */
SHMI_COLD const char *shmi_kind_phrase(uint32_t kind, char out[SHMI_KIND_PHRASE])
{
    static const struct {
        uint32_t kind;
        const char *name;
    } names[] = {
        {SHMI_KIND_MUTEX, "a Mutex"}, {SHMI_KIND_RWMUTEX, "an RWMutex"}, {SHMI_KIND_FAIR_MUTEX, "a FairMutex"},
        {SHMI_KIND_COHORT_MUTEX, "a CohortMutex"}, {SHMI_KIND_SPIN_LOCK, "a SpinLock"}, {SHMI_KIND_RWSPIN_LOCK, "an RWSpinLock"},
        {SHMI_KIND_MULTI_LOCK, "a MultiLock"}, {SHMI_KIND_COND, "a Cond"}, {SHMI_KIND_SEMAPHORE, "a Semaphore"},
        {SHMI_KIND_SEQUENCER, "a Sequencer"}, {SHMI_KIND_EVENT, "an Event"}, {SHMI_KIND_FUTEX, "a Futex"},
        {SHMI_KIND_FUTURE, "a Future"}, {SHMI_KIND_WAIT_GROUP, "a WaitGroup"}, {SHMI_KIND_LATCH, "a Latch"},
        {SHMI_KIND_BARRIER, "a Barrier"}, {SHMI_KIND_ONCE, "a Once"}, {SHMI_KIND_QUEUE, "a Queue"},
        {SHMI_KIND_SIGNAL_WAKER, "a SignalWaker"}, {SHMI_KIND_WAITABLE, "a Waitable"}, {SHMI_KIND_SYNCHRONIZED, "a Synchronized"},
        {SHMI_KIND('V', 'A', 'L', 'U'), "a Value"}, {SHMI_KIND('B', 'L', 'O', 'K'), "a Block"},
    };
    char letters[5];
    size_t i;
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].kind == kind)
            return names[i].name;
    snprintf(out, SHMI_KIND_PHRASE, "an object of kind %s", shmi_kind_text(kind, letters));
    return out;
}

/* Copies the description of the type of an object; 0: it has none. */
SHMI_FN int shmi_type_of(shmsync_arena *a, const shmi_header *h, char out[SHMI_TYPE_MOST + 1])
{
    if (h->type_len == 0 || h->type_len > SHMI_TYPE_MOST)
        return 0;
    memcpy(out, shmi_bytes(a, h->type_off, h->type_len), h->type_len);
    out[h->type_len] = 0;
    return strlen(out) == h->type_len && shmi_type_fingerprint(out) == h->o.layout;
}

/* Sets the layout from a program's options, which have a description or a fingerprint of the type. EINVAL: the
 * description describes no type. */
SHMI_FN int shmi_spec_type(shmi_spec *spec, const char *op, uint64_t layout, const char *type)
{
    spec->layout = layout;
    if (type != NULL) {
        if (!shmi_type_valid(type))
            return shmi_fail(EINVAL, op, spec->name, "%.60s is no description of a type; shmsync_layout says how one is written, and a name stands before each @", type);
        spec->layout = shmi_type_fingerprint(type);
        spec->type = type;
    }
    spec->any_layout = spec->layout == 0;
    return 0;
}

SHMI_FN int shmi_begins_epoch(shmsync_arena *a);
SHMI_FN uint32_t shmi_say_insiders(shmsync_arena *a, shmi_words *w);
SHMI_FN void shmi_say_participant(shmsync_arena *a, uint32_t i, uint32_t n, shmi_words *w);

/* Fails because an object has another type than the program. The text names the difference, the remedy, and the
 * processes that are in, because the remedy needs on_first, which runs only while no other process is in. The text has
 * little room, so it names one field if three are too long. */
SHMI_COLD int shmi_fail_type(shmsync_arena *a, const shmi_object *o, const shmi_spec *spec, const char *type)
{
    enum { difference = 160 };
    char what[768], who[256];
    shmi_words words;
    const char *call = spec->kind == SHMI_KIND_SYNCHRONIZED ? "prims.UpgradeSynchronized" : spec->kind == SHMI_KIND('V', 'A', 'L', 'U') ? "arena.Upgrade" : NULL;
    uint32_t in;
    if (type == NULL || shmi_type_difference(type, spec->type, 3, what, sizeof what) == 0)
        snprintf(what, sizeof what, "it has %llu bytes and fingerprint %#llx, asked for %llu and %#llx", (unsigned long long)o->size,
                 (unsigned long long)o->layout, (unsigned long long)spec->size, (unsigned long long)spec->layout);
    else if (strlen(what) > difference)
        shmi_type_difference(type, spec->type, 1, what, sizeof what);
    memset(&words, 0, sizeof words);
    words.text = who;
    words.size = sizeof who;
    who[0] = 0;
    if (call != NULL && !shmi_begins_epoch(a)) {
        shmi_say(&words, ", which runs only while no other process is in; ");
        in = shmi_say_insiders(a, &words);
        if (in == 0)
            who[words.used - 2] = 0;
        else
            shmi_say(&words, in == 1 ? ": end it and start again" : ": end them and start again");
    }
    return shmi_fail(EINVAL, "arena.open_object", shmi_called(o), "%.*s; if a newer program made it, start that one; otherwise shmsync_delete drops its contents%s%s%s%s",
                     (int)difference, what, call != NULL ? ", or a Go program keeps them by " : "", call != NULL ? call : "", call != NULL ? " in OnFirst" : "", who);
}

/* Compares the object that was found with the object that spec asks for. */
SHMI_FN int shmi_compatible(shmsync_arena *a, const shmi_header *h, const shmi_spec *spec)
{
    const shmi_object *o = &h->o;
    char is[SHMI_KIND_PHRASE], want[SHMI_KIND_PHRASE], type[SHMI_TYPE_MOST + 1], what[2];
    if (o->kind != spec->kind)
        return shmi_fail(EINVAL, "arena.open_object", shmi_called(o), "it is %s, asked for %s", shmi_kind_phrase(o->kind, is), shmi_kind_phrase(spec->kind, want));
    if (o->version != spec->version)
        return shmi_fail(EINVAL, "arena.open_object", shmi_called(o), "it has version %u of the layout of %s, asked for %u", o->version, shmi_kind_phrase(o->kind, is), spec->version);
    if (spec->type != NULL && shmi_type_of(a, h, type) && shmi_type_difference(type, spec->type, 0, what, sizeof what) != 0)
        return shmi_fail_type(a, o, spec, type);
    if (o->layout != spec->layout && !spec->any_layout)
        return shmi_fail_type(a, o, spec, NULL);
    if (o->size != spec->size && !spec->any_size)
        return shmi_fail(EINVAL, "arena.open_object", shmi_called(o), "it has %llu bytes and fingerprint %#llx, asked for %llu and %#llx",
                         (unsigned long long)o->size, (unsigned long long)o->layout, (unsigned long long)spec->size, (unsigned long long)spec->layout);
    return 0;
}

SHMI_FN int shmi_open_entered(shmsync_arena *a, const shmi_spec *spec, shmi_object *o, int *created)
{
    size_t len = spec->name != NULL ? strlen(spec->name) : 0;
    uint64_t hash = shmi_fnv(spec->name, len);
    shmi_header h;
    shmi_ref *ref;
    int tries, err, found;
    *created = 0;
    if (len > SHMI_maxObjectName || !shmi_utf8(spec->name, len))
        return shmi_fail(EINVAL, "arena.open_object", NULL, "a name is 1 to 255 bytes of UTF-8");
    if (spec->size > SHMI_MaxObject)
        return shmi_fail(ENOTSUP, "arena.open_object", spec->name, "a body of %llu bytes", (unsigned long long)spec->size);
    if (len == 0 && (spec->flags & SHMSYNC_OPEN_EXISTING) != 0)
        return shmi_fail(EINVAL, "arena.open_object", NULL, "an anonymous object has no name to be found by");
    if (len == 0) {
        err = shmi_build(a, spec, 0, hash, shmi_make_object(SHMI_objectCommitted, 0), &h);
        if (err != 0)
            return err;
        pthread_mutex_lock(&a->handles);
        ref = shmi_new_ref(a, &h);
        if (ref == NULL) {
            err = ENOMEM;
            shmi_unclaim(a, h.o.off);
        } else {
            SHMSYNC_CRASHPOINT("arena.object.before_publish");
            err = shmi_publish(a, h.o.off, SHMI_blockObject);
            if (err == 0)
                shmi_remember(a, ref, &h, 0);
            else
                free(ref);
        }
        pthread_mutex_unlock(&a->handles);
        *o = h.o;
        *created = err == 0;
        return err;
    }
    for (tries = 0; tries < SHMI_claimTries * SHMI_timeout; tries++) {
        pthread_mutex_lock(&a->handles);
        shmi_lower_reach_if_due(a);
        err = shmi_seek(a, spec->name, len, hash, 0, &h, &found);
        pthread_mutex_unlock(&a->handles);
        if (err == 0 && !found && (spec->flags & SHMSYNC_OPEN_EXISTING) != 0)
            err = shmi_fail(ENOENT, "arena.open_object", spec->name, "nobody has created an object of this name");
        if (err == 0 && !found) {
            err = shmi_create_named(a, spec, len, hash, &h, &found);
            if (err == 0 && !found) {
                *o = h.o;
                *created = 1;
                return 0;
            }
        }
        if (err == EAGAIN) {
            sched_yield();
            continue;
        }
        if (err != 0)
            return err;
        SHMSYNC_CRASHPOINT("arena.object.opened");
        err = (spec->flags & SHMSYNC_CREATE_ONLY) != 0 ? shmi_fail(EEXIST, "arena.open_object", spec->name, "SHMSYNC_CREATE_ONLY opens no object that exists")
                                                       : shmi_compatible(a, &h, spec);
        if (err != 0)
            shmi_close_object(a, h.o.off);
        *o = h.o;
        return err;
    }
    return shmi_fail(EPROTO, "arena.open_object", spec->name, "others keep making and taking away this name");
}
/* Finds the object of that name or creates it. No process can delete the object until shmi_close_object. */
SHMI_FN int shmi_open_object(shmsync_arena *a, const shmi_spec *spec, shmi_object *o, int *created)
{
    int err = shmi_enter(a, "arena.open_object");
    *created = 0;
    if (err != 0)
        return err;
    err = shmi_open_entered(a, spec, o, created);
    shmi_exit(a);
    return err;
}

/* Opens the object at off. The caller holds a->handles. */
SHMI_FN int shmi_open_at(shmsync_arena *a, shmi_off off, shmi_header *h)
{
    int there = 0, err;
    shmi_guard(a, off);
    err = shmi_header_at(a, off, h);
    if (err == 0)
        err = shmi_adopt(a, h, &there);
    shmi_unguard(a);
    return err != 0 || there ? err : shmi_no_object(a, off);
}

/* Opens the object at an offset that may have come from a peer, if it is of that kind and at least that size. If the
 * result is 0, the function has called shmi_enter, and the caller calls shmi_exit when it has a handle. Until then no
 * close ends this opening, so the caller can read the words of the object. */
SHMI_FN int shmi_object_at(shmsync_arena *a, shmi_off off, const char *op, uint32_t kind, uint16_t version, uint64_t size, shmi_object *o)
{
    shmi_header h;
    char is[SHMI_KIND_PHRASE], want[SHMI_KIND_PHRASE];
    int err;
    err = shmi_enter(a, op);
    if (err != 0)
        return err;
    pthread_mutex_lock(&a->handles);
    err = shmi_open_at(a, off, &h);
    pthread_mutex_unlock(&a->handles);
    if (err != 0)
        return shmi_exit_with(a, err);
    *o = h.o;
    if (o->kind != kind || o->version != version || o->size < size) {
        shmi_close_object(a, off);
        return shmi_exit_with(a, shmi_fail(EINVAL, op, shmi_called(o), "it is %s of version %u and %llu bytes, not %s of version %u", shmi_kind_phrase(o->kind, is), o->version,
                                          (unsigned long long)o->size, shmi_kind_phrase(kind, want), version));
    }
    return 0;
}

/* ---- Deleting ---- */

/* Sets *arg, the ID of a dead participant, to 0 if the object at off has an undo log with a transaction of the dead
 * participant. The undo of the transaction writes into memory that the dead participant had open, so no process may use
 * that memory for anything else before the undo. The object is not guarded, so another process may delete the object
 * while this function reads it. At worst the function then finds a transaction that does not exist. */
SHMI_FN int shmi_unfinished_one(shmsync_arena *a, shmi_off off, void *arg)
{
    shmi_participant_id *dead = (shmi_participant_id *)arg;
    const shmi_kind_ops *ops;
    shmi_header h;
    if (shmi_header_at(a, off, &h) == 0 && (ops = shmi_kind_of(&h.o)) != NULL && ops->unfinished != NULL && ops->unfinished(a, &h.o, *dead))
        *dead = 0;
    return *dead != 0;
}
SHMI_FN int shmi_unfinished(shmsync_arena *a, shmi_participant_id dead)
{
    shmi_each_block(a, shmi_id_slot(dead), SHMI_blockObject, shmi_unfinished_one, &dead);
    return dead == 0;
}

/* Counts the participants that have the object open. If words is not NULL, appends the names of up to two of them. */
SHMI_FN uint32_t shmi_openers(shmsync_arena *a, const shmi_header *h, shmi_words *words)
{
    uint32_t i, mask, count = 0;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t *word = shmi_open_bit(a, h, i, &mask);
        shmi_participant_id n = shmi_id_in(i, shmi_slot_state(a, i));
        /* A dead participant may still write into the object, and so may the process that undoes its transaction. */
        if ((shmi_ld32(word) & mask) != 0 && (shmi_current(a, n) || !shmi_gone(a, n) || shmi_unfinished(a, n))) {
            count++;
            if (words != NULL)
                shmi_say_participant(a, i, count, words);
        }
    }
    return count;
}
/* Fails with EBUSY, and names participants that have the object open. */
SHMI_COLD int shmi_fail_openers(shmsync_arena *a, const shmi_header *h)
{
    char who[256];
    shmi_words words;
    uint32_t n;
    memset(&words, 0, sizeof words);
    words.text = who;
    words.size = sizeof who;
    who[0] = 0;
    n = shmi_openers(a, h, &words);
    if (n > 2)
        shmi_say(&words, " and %u more", n - 2);
    if (n == 0) /* the last participant has just closed the object */
        shmi_say(&words, "a participant");
    return shmi_fail(EBUSY, "arena.delete", shmi_called(&h->o), "%s %s it open", who, n > 1 ? "have" : "has");
}

/* Frees an object whose deletion is decided. */
SHMI_FN void shmi_finish_erase(shmsync_arena *a, const shmi_header *h)
{
    uint32_t freeing = shmi_make_block(SHMI_blockFreeing, a->self);
    shmi_touch(a, h->block.chunk);
    shmi_publish_records(a, h->o.off);
    if (!shmi_block_swap(&h->block, shmi_make_block(SHMI_blockObject, 0), freeing))
        return;
    SHMSYNC_CRASHPOINT("arena.delete.freeing");
    if (h->o.name_len != 0)
        shmi_unlist(a, h->o.off, h->hash);
    SHMSYNC_CRASHPOINT("arena.delete.unlisted");
    shmi_release_unseen(a, &h->block, freeing);
}

SHMI_FN shmi_participant_id shmi_holder_of(shmsync_arena *a, const shmi_object *o);
/* Fails with EBUSY, and names a participant that holds the object. */
SHMI_COLD int shmi_fail_holder(shmsync_arena *a, const shmi_header *h, shmi_participant_id holder)
{
    char who[256];
    shmi_words words;
    memset(&words, 0, sizeof words);
    words.text = who;
    words.size = sizeof who;
    who[0] = 0;
    shmi_say_participant(a, shmi_id_slot(holder), 1, &words);
    return shmi_fail(EBUSY, "arena.delete", shmi_called(&h->o), "%s holds it", who);
}
/* Decides the deletion of h: changes its state from committed to aborted, unless a participant has h open, or has
 * closed h and still holds it; see docs/abi.md. */
SHMI_FN int shmi_decide(shmsync_arena *a, const shmi_header *h)
{
    uint32_t ours = shmi_make_object(SHMI_objectDeleting, a->self), who = 0;
    int tries;
    SHMSYNC_CRASHPOINT("arena.delete.before_mark");
    for (tries = 0; tries < SHMI_claimTries * SHMI_timeout; tries++) {
        uint32_t s = shmi_ld32(h->state);
        if (!shmi_object_legal(s))
            return shmi_corrupt_object(a, h->o.off, "phase");
        if (!shmi_object_there(s))
            return shmi_fail(ENOENT, "arena.delete", shmi_called(&h->o), "somebody else has deleted it");
        if (shmi_object_phase(s) == SHMI_objectDeleting && tries < SHMI_timeout && shmi_current(a, shmi_object_name(s))) {
            sched_yield();
            continue;
        }
        if (!shmi_cas32(h->state, s, ours))
            continue;
        SHMSYNC_CRASHPOINT("arena.delete.marked");
        who = shmi_openers(a, h, NULL);
        SHMSYNC_CRASHPOINT("arena.delete.before_decide");
        if (who == 0) {
            shmi_participant_id holder = shmi_holder_of(a, &h->o);
            if (holder != 0) {
                shmi_cas32(h->state, ours, shmi_make_object(SHMI_objectCommitted, 0));
                return shmi_fail_holder(a, h, holder);
            }
            if (shmi_cas32(h->state, ours, shmi_make_object(SHMI_objectAborted, a->self)))
                return 0;
            continue;
        }
        shmi_cas32(h->state, ours, shmi_make_object(SHMI_objectCommitted, 0));
        if (tries >= SHMI_timeout)
            break;
        sched_yield();
    }
    return shmi_fail_openers(a, h);
}

/* Deletes the object h, which this process has just opened in order to delete it. If the deletion is not possible,
 * closes h. The caller holds a->handles. */
SHMI_FN int shmi_erase(shmsync_arena *a, shmi_header *h)
{
    shmi_ref *ref = shmi_ref_of(a, h->o.off);
    int err;
    if (ref->count > 1) {
        shmi_forget(a, h->o.off);
        return shmi_fail(EBUSY, "arena.delete", shmi_called(&h->o), "this process has it open");
    }
    /* The guard replaces the open bit of this process, which would prevent the deletion. */
    shmi_guard(a, h->o.off);
    *h = ref->h;
    shmi_forget(a, h->o.off);
    err = shmi_decide(a, h);
    shmi_unguard(a);
    if (err == 0) {
        SHMSYNC_CRASHPOINT("arena.delete.decided");
        shmi_finish_erase(a, h);
    }
    return err;
}
/* Removes only the object of that name, not the successor that an upgrade has left. The caller holds a->handles. */
SHMI_FN int shmi_delete_alone(shmsync_arena *a, const char *name, size_t len)
{
    shmi_header h;
    int found = 0, err = shmi_seek(a, name, len, shmi_fnv(name, len), 0, &h, &found);
    if (err == 0 && !found)
        err = shmi_fail(ENOENT, "arena.delete", name, "no object has this name");
    return err != 0 ? err : shmi_erase(a, &h);
}

/* ---- Successors, which interrupted upgrades of Go programs have left: internal/arenakernel/upgrade.go ---- */

#define SHMI_SUCCESSOR_SUFFIX " (upgrade)"
/* The size of the trailer behind the new body in a successor. The trailer contains the offset and the time of creation
 * of the old object, 8 bytes each, and the kind and version of the new object, 4 bytes each. */
#define SHMI_SUCCESSOR_TRAILER 24

/* Deletes the object h if its time of creation is the parameter created. ENOENT: this object does not exist any more,
 * even if another object has its name by now. The caller holds a->handles. */
SHMI_FN int shmi_delete_created(shmsync_arena *a, const shmi_header *h, uint64_t created)
{
    shmi_header now;
    int err = shmi_open_at(a, h->o.off, &now);
    if (err != 0)
        return err == EPROTO ? err : ENOENT;
    if (now.o.name_len != h->o.name_len || memcmp(now.o.name, h->o.name, now.o.name_len) != 0 ||
        shmi_ld64(shmi_u64(a, h->o.off + SHMI_objCreated)) != created) {
        shmi_forget(a, h->o.off);
        return ENOENT;
    }
    return shmi_erase(a, &now);
}
/* Whether the object of that name makes its successor s redundant, because the object also contains the data of s: see
 * isRedundant. If the parameter of is not 0, it is the offset at which the object must be. *busy is how many
 * participants have the object open, besides this call. */
SHMI_FN int shmi_redundant(shmsync_arena *a, const char *name, size_t len, const shmi_header *s, shmi_off of, int *redundant, uint32_t *busy)
{
    uint64_t size = s->o.size - SHMI_SUCCESSOR_TRAILER, from[2];
    const unsigned char *t = shmi_bytes(a, s->o.body + size, SHMI_SUCCESSOR_TRAILER);
    uint32_t to[2];
    shmi_header h;
    int found = 0, err = shmi_seek(a, name, len, shmi_fnv(name, len), 0, &h, &found);
    *redundant = 0;
    *busy = 0;
    if (err != 0 || !found)
        return err;
    memcpy(from, t, sizeof from);
    memcpy(to, t + sizeof from, sizeof to);
    *busy = shmi_openers(a, &h, NULL) - 1; /* without this process; the next statement adds it if it has another opening */
    *busy += shmi_ref_of(a, h.o.off)->count > 1;
    *redundant = (h.o.off == from[0] && shmi_ld64(shmi_u64(a, h.o.off + SHMI_objCreated)) == from[1]) ||
                 (*busy == 0 && h.o.kind == to[0] && h.o.version == to[1] && h.o.layout == s->o.layout && h.o.size == size &&
                  memcmp(shmi_bytes(a, h.o.body, size), shmi_bytes(a, s->o.body, size), (size_t)size) == 0);
    *redundant = *redundant && (of == 0 || h.o.off == of);
    shmi_forget(a, h.o.off);
    return 0;
}
/* Deletes the successor that an interrupted upgrade of the object of that name has left, before the caller deletes the
 * object: see deleteSuccessor. The object does not need its successor, so a death between the two deletions does no
 * harm. A successor that is not redundant has data of its own, so it stays while a participant has the object open. If
 * the parameter of is not 0, it is an offset, and the call deletes only a successor of the object at this offset. The
 * caller holds a->handles. */
SHMI_FN int shmi_delete_successor(shmsync_arena *a, const char *name, size_t len, shmi_off of, int *deleted)
{
    char next[SHMI_maxObjectName + 1];
    size_t n = len + sizeof SHMI_SUCCESSOR_SUFFIX - 1;
    int tries;
    *deleted = 0;
    if (len == 0 || n > SHMI_maxObjectName || shmi_ld32(shmi_u32(a, SHMI_hdrSuccessors)) == 0)
        return 0;
    memcpy(next, name, len); /* a program in Go may use NUL in a name */
    memcpy(next + len, SHMI_SUCCESSOR_SUFFIX, sizeof SHMI_SUCCESSOR_SUFFIX);
    for (tries = 0;; tries++) {
        shmi_header s;
        uint64_t created;
        uint32_t busy = 0;
        int found = 0, is, redundant = 0, err = shmi_seek(a, next, n, shmi_fnv(next, n), 0, &s, &found);
        if (err != 0 || !found)
            return err;
        created = shmi_ld64(shmi_u64(a, s.o.off + SHMI_objCreated));
        is = s.o.kind == SHMI_KIND('B', 'L', 'O', 'K') && s.o.layout != 0 && s.o.size >= SHMI_SUCCESSOR_TRAILER; /* a block of a program has no layout */
        if (is)
            err = shmi_redundant(a, name, len, &s, of, &redundant, &busy);
        shmi_forget(a, s.o.off);
        if (err != 0 || !is || (of != 0 && !redundant))
            return err;
        if (redundant || busy == 0) {
            err = shmi_delete_created(a, &s, created);
            *deleted = err == 0;
            return err == ENOENT ? 0 : err; /* ENOENT: another process has deleted it */
        }
        if (tries >= SHMI_timeout)
            return shmi_fail(EBUSY, "arena.delete", name, "%u participants have it open", busy);
        sched_yield(); /* a participant may have the object open only for a moment */
    }
}

int shmsync_delete(shmsync_arena *a, const char *name)
{
    SHMI_BEGIN_IN(a, "arena.delete");
    size_t len = strlen(name);
    int deleted, err = shmi_enter(a, "arena.delete");
    if (err != 0)
        return SHMI_TELL(err);
    pthread_mutex_lock(&a->handles);
    shmi_release_deferred(a);
    shmi_lower_reach_if_due(a);
    err = shmi_delete_successor(a, name, len, 0, &deleted);
    if (err == 0) {
        err = shmi_delete_alone(a, name, len);
        if (err == ENOENT && deleted)
            err = 0;
    }
    pthread_mutex_unlock(&a->handles);
    shmi_exit(a);
    return SHMI_TELL(err);
}
int shmsync_delete_at(shmsync_arena *a, shmsync_offset off)
{
    SHMI_BEGIN_IN(a, "arena.delete");
    shmi_header h;
    int deleted, found = 0, err = shmi_enter(a, "arena.delete");
    if (err != 0)
        return SHMI_TELL(err);
    pthread_mutex_lock(&a->handles);
    shmi_release_deferred(a);
    err = shmi_open_at(a, off, &h);
    if (err == 0 && h.o.name_len != 0) {
        shmi_header named;
        err = shmi_seek(a, h.o.name, h.o.name_len, h.hash, 0, &named, &found);
        if (err == 0 && found)
            shmi_forget(a, named.o.off);
        shmi_forget(a, off);
        /* A successor belongs to the object that has the name. */
        if (err == 0 && found && named.o.off == off)
            err = shmi_delete_successor(a, h.o.name, h.o.name_len, h.o.off, &deleted);
        if (err == 0)
            err = shmi_open_at(a, off, &h);
    }
    if (err == 0)
        err = shmi_erase(a, &h);
    pthread_mutex_unlock(&a->handles);
    shmi_exit(a);
    return SHMI_TELL(err);
}

/* Ends a deletion of the object in b that dead had begun: completes a deletion that was decided, and cancels any other.
 * The caller is the reaper of dead, and holds a->handles. */
SHMI_FN void shmi_resolve_delete(shmsync_arena *a, const shmi_block *b, shmi_participant_id dead)
{
    shmi_block now;
    shmi_header h;
    uint32_t *state = shmi_u32(a, b->off + SHMI_objState), s;
    shmi_guard(a, b->off);
    if (shmi_locate(a, b->off, &now) && now.word == b->word && now.size == b->size && shmi_block_kind(shmi_ld32(b->word)) == SHMI_blockObject) {
        s = shmi_ld32(state);
        if (shmi_object_name(s) == dead && shmi_object_legal(s)) {
            if (shmi_object_phase(s) == SHMI_objectDeleting) {
                shmi_cas32(state, s, shmi_make_object(SHMI_objectCommitted, 0));
            } else if (shmi_object_phase(s) == SHMI_objectAborted && shmi_read_header(a, b, &h) == 0) {
                shmi_unguard(a);
                shmi_finish_erase(a, &h);
                return;
            }
        }
    }
    shmi_unguard(a);
}

/* ---- Walks ---- */

typedef struct shmi_visit_arg {
    void (*f)(shmsync_arena *a, const shmi_object *o, void *arg);
    void *arg;
    uint64_t *guard;
    int err; /* EPROTO: the header of an object is impossible */
} shmi_visit_arg;
SHMI_FN int shmi_visit_one(shmsync_arena *a, shmi_off off, void *arg)
{
    shmi_visit_arg *v = (shmi_visit_arg *)arg;
    shmi_header h;
    int err;
    shmi_st64(v->guard, off);
    err = shmi_header_at(a, off, &h);
    if (err == 0 && shmi_object_there(shmi_ld32(h.state)))
        v->f(a, &h.o, v->arg);
    else if (err == EPROTO)
        v->err = EPROTO;
    return 1;
}
/* Calls f for each object in the chunks that the participant in a slot may have touched. If slot is 0, calls f for
 * each object of the arena. The objects are not opened: another process may delete an object meanwhile, but its bytes
 * are not used again before f returns. f must not visit objects itself. EPROTO: an object with an impossible header
 * was left out. */
SHMI_FN int shmi_visit(shmsync_arena *a, uint32_t slot, void (*f)(shmsync_arena *a, const shmi_object *o, void *arg), void *arg)
{
    shmi_visit_arg v;
    pthread_mutex_lock(&a->walking);
    v.f = f;
    v.arg = arg;
    v.err = 0;
    v.guard = shmi_slot64(a, a->my_slot, SHMI_slotWalking);
    shmi_each_block(a, slot, SHMI_blockObject, shmi_visit_one, &v);
    shmi_st64(v.guard, a->rest);
    pthread_mutex_unlock(&a->walking);
    return v.err;
}
/* Sets the value that the word SHMI_slotWalking of this participant has while no walk is under way. */
SHMI_FN void shmi_rest_guard(shmsync_arena *a, shmi_off rest)
{
    pthread_mutex_lock(&a->walking);
    a->rest = rest;
    shmi_st64(shmi_slot64(a, a->my_slot, SHMI_slotWalking), rest);
    pthread_mutex_unlock(&a->walking);
}

SHMI_FN void shmi_clear_bit(shmsync_arena *a, const shmi_header *h, uint32_t slot)
{
    uint32_t mask, *word = shmi_open_bit(a, h, slot, &mask);
    if ((shmi_ld32(word) & mask) != 0)
        shmi_and32(word, ~mask);
}
SHMI_FN int shmi_clear_bit_at(shmsync_arena *a, shmi_off off, void *arg)
{
    shmi_header h;
    shmi_guard(a, off);
    if (shmi_header_at(a, off, &h) == 0 && shmi_object_there(shmi_ld32(h.state)))
        shmi_clear_bit(a, &h, *(uint32_t *)arg);
    shmi_unguard(a);
    return 1;
}
/* Clears the open bit in an object that is committed, and whose block is still claimed by its maker. A claimed block
 * may contain any bytes, so the directory decides whether there is an object. */
SHMI_FN int shmi_clear_bit_unpublished(shmsync_arena *a, shmi_off off, void *arg)
{
    shmi_block b;
    shmi_header h;
    uint64_t *word;
    int same;
    if (!shmi_locate(a, off, &b) || b.class_ == SHMI_classNode || shmi_read_header(a, &b, &h) != 0 || h.o.name_len == 0 ||
        !shmi_object_there(shmi_ld32(h.state)))
        return 1;
    word = shmi_find_entry(a, off, h.hash);
    if (word == NULL)
        return 1;
    if (shmi_enter_entry(a, word, shmi_make_entry(off, h.hash), &h, &same) == 0 && same && shmi_object_there(shmi_ld32(h.state)))
        shmi_clear_bit(a, &h, *(uint32_t *)arg);
    shmi_unguard(a);
    return 1;
}
/* Clears the open bits and the guards of a dead participant. */
SHMI_FN void shmi_clear_open_bits(shmsync_arena *a, shmi_participant_id dead)
{
    uint32_t slot = shmi_id_slot(dead);
    pthread_mutex_lock(&a->handles);
    /* Claimed blocks come before objects: otherwise an object that its maker publishes between the two walks would be
     * left out. */
    shmi_each_block(a, slot, SHMI_blockClaimed, shmi_clear_bit_unpublished, &slot);
    shmi_each_block(a, slot, SHMI_blockObject, shmi_clear_bit_at, &slot);
    shmi_st64(shmi_slot64(a, slot, SHMI_slotOpening), 0);
    shmi_st64(shmi_slot64(a, slot, SHMI_slotWalking), 0);
    pthread_mutex_unlock(&a->handles);
}

/* ---- Handles: all openings of an object in this process share one handle ---- */

/* Returns err, the result of the call that opened o to make a handle. If that call failed and o is a new anonymous
 * object, deletes o first, because no process could find it. The caller is still within the shmi_enter in which it
 * opened o. */
SHMI_FN int shmi_handed_out(shmsync_arena *a, const shmi_object *o, int created, int err)
{
    if (err != 0 && created && o->name_len == 0) {
        shmi_failure why = shmi_last;
        shmsync_delete_at(a, o->off);
        shmi_last = why;
    }
    return err;
}

/* Returns the handle that this process has for the object, which the caller has opened. If there is none, build makes
 * it. If that fails, shmi_share notes the error of build, or ENOMEM, and returns NULL. */
SHMI_FN void *shmi_share(shmsync_arena *a, const shmi_object *o, void *(*build)(shmsync_arena *a, const shmi_object *o, const void *arg), const void *arg)
{
    shmi_ref *r;
    void *handle = NULL;
    int closing, why = ENOMEM;
    pthread_mutex_lock(&a->handles_of);
    pthread_mutex_lock(&a->handles);
    r = shmi_ref_of(a, o->off);
    pthread_mutex_unlock(&a->handles);
    closing = __atomic_load_n(&a->closing, __ATOMIC_SEQ_CST); /* 0: shmi_close_handles takes handles_of later */
    if (r != NULL && !closing) {
        if (r->handle == NULL) {
            shmi_last.err = 0;
            r->handle = build(a, o, arg);
            if (r->handle == NULL && shmi_last.err != 0)
                why = shmi_last.err;
            if (r->handle != NULL)
                shmi_st64(&shmi_head_of(r->handle)->off, o->off);
            if (r->handle != NULL)
                __atomic_store_n(&shmi_head_of(r->handle)->arena, a, __ATOMIC_RELEASE);
        } else if (r->opens == 0) {
            /* The last handle is closed, but calls through it are under way, and their opening keeps the object open.
             * The handle uses this opening again, so the opening of the caller is closed. */
            shmi_renew_thing(r->handle);
            shmi_close_object(a, o->off);
        }
        handle = r->handle;
        if (handle != NULL)
            r->opens++;
    }
    pthread_mutex_unlock(&a->handles_of);
    if (handle == NULL) {
        shmi_close_object(a, o->off);
        shmi_fail(closing ? EBADF : why, "open", shmi_called(o), "%s", "");
    }
    return handle;
}

/* Sets the function end, which frees the handle of an object and all that the handle owns, for the case that the arena
 * is closed before the handle. The arena's file is unmapped before end runs: see shmi_unmapped. The caller holds
 * a->handles_of. */
SHMI_FN void shmi_built_ends_with(shmsync_arena *a, shmi_off off, void (*end)(void *handle))
{
    shmi_ref *r;
    pthread_mutex_lock(&a->handles);
    r = shmi_ref_of(a, off);
    pthread_mutex_unlock(&a->handles);
    if (r != NULL)
        r->end = end;
}
/* Whether the arena was closed before the handle that is being ended. Then the words of the object are not mapped any
 * more, and the close of the arena has woken the waiters. */
SHMI_FN int shmi_unmapped(const shmsync_arena *a) { return __atomic_load_n(&a->retired, __ATOMIC_ACQUIRE) != 0; }
/* Ends the opening of a handle that was closed for the last time, unless a call through it is under way: then the last
 * such call ends the opening. The caller holds a->handles_of.
 *
 * The watcher may be checking the object for sleeping threads. After shmi_may_end no thread waits for the object, so no
 * further check begins, and the opening ends after the check that is under way. So a check must neither wait for
 * a->handles_of nor make a call that may end an opening. */
SHMI_FN void shmi_end_if_unused(shmsync_arena *a, shmi_ref *r)
{
    shmi_off off = r->h.o.off;
    void *handle = r->handle;
    if (!shmi_may_end(handle))
        return;
    shmi_await_look(a);
    r->handle = NULL;
    r->end(handle);
    shmi_close_object(a, off);
}
/* Closes one opening of the handle. If this was the last one and no call through the handle is under way, calls the
 * function end for the handle. EBADF: the object is not open. */
SHMI_FN int shmi_unshare(shmsync_arena *a, shmi_off off, void (*end)(void *handle))
{
    shmi_ref *r;
    int open_;
    int err = shmi_enter(a, "close");
    if (err != 0)
        return err;
    pthread_mutex_lock(&a->handles_of);
    pthread_mutex_lock(&a->handles);
    r = shmi_ref_of(a, off);
    open_ = r != NULL && r->opens > 0; /* if r has no handle, another thread may end r after the unlock */
    pthread_mutex_unlock(&a->handles);
    if (open_) {
        if (--r->opens == 0) {
            r->end = end;
            shmi_close_thing(r->handle);
            shmi_end_if_unused(a, r);
        } else {
            shmi_close_object(a, off);
        }
    }
    pthread_mutex_unlock(&a->handles_of);
    shmi_exit(a);
    return open_ ? 0 : shmi_fail(EBADF, "close", NULL, "it is not open");
}

/* As shmi_enter, for a call that waits for an object, or runs a function of the user's, through the handle at thing.
 * The call counts itself in users of the head of the handle, and is refused if the opening has ended already. The last
 * close sets serial of that head to 0. If no call is counted then, the close ends the opening. Otherwise the last
 * counted call does so, when it leaves through shmi_exit_for and finds that serial is 0:
 *
 *     the call                             the last close
 *     users + 1, unless the opening ended  serial := 0
 *     ...                                  no users: the opening ends here
 *     users - 1
 *     no users, and serial is 0:
 *     the opening ends here
 *
 * A signal handler makes no such call, because the end of an opening takes locks. */
SHMI_FN int shmi_enter_for(void *thing, shmsync_arena *a, const char *op)
{
    int err = shmi_enter(a, op);
    if (err != 0 || SHMI_LIKELY(shmi_keep(thing)))
        return err;
    shmi_exit(a);
    return op == NULL ? EBADF : shmi_fail(EBADF, op, NULL, "the handle was closed");
}
SHMI_COLD void shmi_settle_close(void *thing, shmsync_arena *a)
{
    shmi_ref *r;
    int last;
    pthread_mutex_lock(&a->handles_of);
    pthread_mutex_lock(&a->handles);
    r = shmi_ref_of(a, shmi_ld64(&shmi_head_of(thing)->off));
    last = r != NULL && r->handle == thing && r->opens == 0; /* if thing is not the handle of r, another thread may end r after the unlock */
    pthread_mutex_unlock(&a->handles);
    if (last)
        shmi_end_if_unused(a, r);
    pthread_mutex_unlock(&a->handles_of);
}
SHMI_FN void shmi_exit_for(void *thing, shmsync_arena *a)
{
    shmi_head *h = shmi_head_of(thing);
    if (shmi_add32(&h->users, (uint32_t)-1) == 1 && SHMI_UNLIKELY(shmi_ld64(&h->serial) == 0))
        shmi_settle_close(thing, a);
    shmi_exit(a);
}
/* Begins the last part of a call through the handle at thing, after the call has taken effect. Another thread may see
 * the effect, close the handle and delete the object. Then another object may have the bytes of this one. So after the
 * effect and before this function, the call only loads words. If the result is 1, the call may use the words until
 * shmi_exit_for. If the result is 0, the handle has ended, and its end has made the wakes of the call. No signal
 * handler calls this function, because the end of an opening takes locks. */
SHMI_FN int shmi_enter_late(void *thing, shmsync_arena *a)
{
    return shmi_enter_for(thing, a, NULL) == 0; /* a refusal is no failure: the call has succeeded */
}

