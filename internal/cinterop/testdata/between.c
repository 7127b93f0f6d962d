/* Tests calls that decide by several loads, while another participant changes a word between two of them: between ARENA
 * VERB. Each test makes the change itself, right before a load of a word that it watches: before the first one, in a second
 * run before the second one, and so on until the call makes no further load. SIGALRM ends a test that hangs. */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
static void at_word(const void *word);
/* Unlocks m. For the tests that counts as a load of m. */
static inline int unlocks(pthread_mutex_t *m)
{
    int err = pthread_mutex_unlock(m);
    at_word(m);
    return err;
}
#define pthread_mutex_unlock(m) unlocks(m)
/* word may be an expression such as &v[i++], so it is evaluated once. */
#define __atomic_load_n(word, order)        \
    __extension__({                         \
        __typeof__(word) word_ = (word);    \
        at_word((const void *)word_);       \
        __atomic_load_n(word_, order);      \
    })
#define __atomic_fetch_or(word, bits, order)     \
    __extension__({                              \
        __typeof__(word) word_ = (word);         \
        at_word((const void *)word_);            \
        __atomic_fetch_or(word_, bits, order);   \
    })
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/prctl.h>
#include "check.h"
#include "processes.h"

enum { other = 9, third = 8 }; /* slots whose participants the test makes up */

static shmsync_arena *arena;
static _Thread_local const void *watched; /* of the thread of the test; NULL after the change */
static _Thread_local int loads;           /* how many loads of the word are left until the change */
static void (*change)(void);
static int changed, most; /* whether the last run made the change, and the last load before which a run made it */

static void at_word(const void *word)
{
    if (word != watched || --loads > 0)
        return;
    watched = NULL;
    changed = 1;
    change();
}
/* Begins a run in which f makes its change before load number n of the word. */
static void before_load(const void *word, int n, void (*f)(void))
{
    changed = 0;
    change = f;
    loads = n;
    watched = word;
}
/* Ends a run, and returns whether it has made the change. If it has, there is another run. */
static int again(int n)
{
    watched = NULL;
    if (changed && n > most)
        most = n;
    CHECK(n < 1000, 1);
    return changed;
}
/* Makes the runs for one word: prepares, calls with f as the change, and checks, until a run makes no change. */
#define RUNS(word, f, prepare, call, check)     \
    do {                                        \
        int run_ = 0;                           \
        do {                                    \
            prepare;                            \
            before_load((word), ++run_, (f));   \
            call;                               \
            watched = NULL;                     \
            check;                              \
        } while (again(run_));                  \
    } while (0)

/* Puts a slot into a state, of a participant that the test makes up. It has no byte lock. */
static shmi_participant_id is_in(uint32_t slot, uint32_t phase, uint32_t generation)
{
    shmi_st32(shmi_slot32(arena, slot, SHMI_slotState), shmi_slot_word(phase, generation));
    return shmi_make_participant_id(slot, generation);
}

/* ---- Who died ---- */

static const uint32_t was = 3;
static void taken_over(void) { is_in(other, SHMI_phaseJoining, was + 1); }
static void marked(void) { is_in(other, SHMI_phaseDead, was); }
static void describes(uint32_t phase)
{
    is_in(other, phase, was);
    shmi_put_label(arena, shmi_slot(arena, other) + SHMI_slotLabel, "victim");
    shmi_st32(shmi_slot32(arena, other, SHMI_slotDescribed), was);
}
/* While a call asks who a participant is, the participant dies, or a joiner takes the slot of the dead one over. In both
 * cases there is no death record yet. */
static void who(void)
{
    shmi_participant_id n = shmi_make_participant_id(other, was);
    uint32_t *state = shmi_slot32(arena, other, SHMI_slotState);
    shmsync_participant p;
    int err;
    RUNS(state, taken_over, describes(SHMI_phaseDead), err = shmi_who(arena, n, &p), { CHECK(err, 0); CHECK(strcmp(p.label, "victim"), 0); });
    RUNS(state, marked, describes(SHMI_phaseLive), err = shmi_who(arena, n, &p), { CHECK(err, 0); CHECK(strcmp(p.label, "victim"), 0); });
}

/* ---- The rows of the list of participants ---- */

enum { victim_pid = 1111, heir_pid = 2222 };
static shmsync_participant row; /* what the list says of the slot other */
static int rows;
static int keep_row(const shmsync_participant *p, void *arg)
{
    (void)arg;
    if (p->slot == other) {
        row = *p;
        rows++;
    }
    return 0;
}
static void victim_in(uint32_t phase)
{
    describes(phase);
    shmi_st32(shmi_slot32(arena, other, SHMI_slotPID), victim_pid);
}
/* The victim has left, and the next participant of the slot joins. */
static void replaced(void)
{
    shmi_describe_nobody(arena, other);
    is_in(other, SHMI_phaseJoining, was + 1);
    shmi_st32(shmi_slot32(arena, other, SHMI_slotPID), heir_pid);
    shmi_put_label(arena, shmi_slot(arena, other) + SHMI_slotLabel, "heir");
    shmi_st32(shmi_slot32(arena, other, SHMI_slotDescribed), was + 1);
}
static void list_rows(void)
{
    rows = 0;
    CHECK(shmsync_arena_participants(arena, keep_row, NULL), 0);
}
/* The row of one participant has the process ID and the label of no other one. */
static void check_row(void)
{
    uint32_t pid;
    CHECK(rows <= 1, 1);
    if (rows == 0)
        return;
    pid = row.generation == was ? victim_pid : heir_pid;
    CHECK(row.generation == was || row.generation == was + 1, 1);
    CHECK(row.pid == pid || row.pid == 0, 1);
    CHECK(strcmp(row.label, row.pid == 0 ? "" : row.generation == was ? "victim" : "heir"), 0);
}
/* A joiner has taken a slot and has not described itself yet. In another run, it does so while a call lists the
 * participants. */
static void listed_rows(void)
{
    uint32_t *at[3];
    int i;
    at[0] = shmi_slot32(arena, other, SHMI_slotState);
    at[1] = shmi_slot32(arena, other, SHMI_slotDescribed);
    at[2] = shmi_slot32(arena, other, SHMI_slotPID);
    victim_in(SHMI_phaseDead);
    taken_over();
    list_rows();
    CHECK(rows, 1);
    CHECK(row.generation, was + 1);
    CHECK(row.pid, 0);
    CHECK(row.died_ns, 0);
    CHECK(row.label[0], 0);
    for (i = 0; i < 3; i++)
        RUNS(at[i], replaced, victim_in(SHMI_phaseLive), list_rows(), check_row());
    CHECK(rows, 1); /* of the last run, which made no change */
    CHECK(row.pid, victim_pid);
}

/* ---- The records of a death ---- */

static uint32_t generation;
static void taken_by_joiner(void) { is_in(other, SHMI_phaseJoining, generation + 1); }
/* A joiner takes the slot of a dead participant while a reaper is about to record the death. The reaper is stopped, so the
 * joiner gives the slot back. The reaper goes on, and records the death before it frees the slot. */
static void recorded(void)
{
    uint32_t *state = shmi_slot32(arena, other, SHMI_slotState);
    shmi_reap_progress b;
    shmi_participant_id dead = 0;
    RUNS(
        state, taken_by_joiner,
        {
            dead = is_in(other, SHMI_phaseDead, ++generation);
            memset(&b, 0, sizeof b);
            b.of = *state;
            b.reaped = b.handed = shmi_now();
        },
        shmi_finish(arena, other, &b),
        {
            if (changed)
                is_in(other, SHMI_phaseDead, generation);
            while (shmi_slot_phase(shmi_slot_state(arena, other)) != SHMI_phaseFree)
                shmi_finish(arena, other, &b);
            CHECK(shmi_has_death_record(arena, dead), 1);
        });
}

/* A participant is killed after it has marked another one dead, and before it has stored the time of the death. The record
 * has the time when it was written. */
static void undated(void)
{
    shmi_participant_id n = shmi_make_participant_id(other, was), name;
    shmsync_participant p;
    int64_t before = shmi_unix_now();
    describes(SHMI_phaseDead);
    CHECK(shmi_record_deaths(arena, other, shmi_slot_state(arena, other), was), 1);
    CHECK(shmi_read_death_record(arena, 0, shmi_ld64(shmi_death_records_total(arena, 0)) - 1, &p, &name), 1);
    CHECK(name, n);
    CHECK(strcmp(p.label, "victim"), 0);
    CHECK(p.died_ns >= before, 1);
}

static void written(void)
{
    shmi_off o = shmi_death_record(arena, 0, 0);
    shmi_st32(shmi_u32(arena, o + SHMI_deathRecordFlags), SHMI_deathRecordPending);
    shmi_st64(shmi_u64(arena, o + SHMI_deathRecordSeq), 1);
}
static void unwritten(void)
{
    shmi_off o = shmi_death_record(arena, 0, 0);
    shmi_st64(shmi_death_records_total(arena, 1), 0); /* the participant that made the arena has begun an epoch */
    shmi_st64(shmi_death_records_total(arena, 0), 1);
    shmi_st32(shmi_u32(arena, o + SHMI_deathRecordFlags), 0);
    shmi_st64(shmi_u64(arena, o + SHMI_deathRecordSeq), 0);
}
/* The death of a joiner that was never in is recorded while another joiner reads the records. Nobody has begun an epoch. */
static void nobody_began(void)
{
    shmi_off o = shmi_death_record(arena, 0, 0);
    int nobody;
    RUNS(shmi_u64(arena, o + SHMI_deathRecordSeq), written, unwritten(), nobody = shmi_nobody_began(arena), CHECK(nobody, 1));
    RUNS(shmi_u32(arena, o + SHMI_deathRecordFlags), written, unwritten(), nobody = shmi_nobody_began(arena), CHECK(nobody, 1));
}

static void tells(void)
{
    shmsync_participant p;
    memset(&p, 0, sizeof p);
    p.slot = other;
    p.generation = 1;
    shmi_put_death_record(arena, 0, &p, 0);
    shmi_ring_told(arena);
}
static void hears(const shmsync_participant *p, void *arg)
{
    (void)p;
    (void)arg;
}
static uint32_t rung;
static void hears_none(void)
{
    uint32_t *caps = shmi_slot32(arena, arena->my_slot, SHMI_slotCaps);
    CHECK(shmsync_arena_on_death(arena, NULL, NULL), 0);
    shmi_and32(caps, ~(uint32_t)SHMI_capTold);
    rung = shmi_ld32(shmi_slot32(arena, arena->my_slot, SHMI_slotWatchDoorbell));
}
/* A death is recorded while a program sets its function for deaths. Either the death counts as an earlier one, or the
 * death watcher of the program is rung. */
static void heard(void)
{
    uint32_t *caps = shmi_slot32(arena, arena->my_slot, SHMI_slotCaps), *doorbell = shmi_slot32(arena, arena->my_slot, SHMI_slotWatchDoorbell);
    uint64_t *total = shmi_death_records_total(arena, 0), *at[2], next = 0;
    int i, err;
    at[0] = total;
    at[1] = (uint64_t *)(void *)caps;
    for (i = 0; i < 2; i++)
        RUNS(at[i], tells, hears_none(), err = shmsync_arena_on_death(arena, hears, NULL), {
            CHECK(err, 0);
            pthread_mutex_lock(&arena->death_lock);
            next = arena->death_record_next;
            pthread_mutex_unlock(&arena->death_lock);
            CHECK(next == shmi_ld64(total) || shmi_ld32(doorbell) != rung, 1);
        });
}

/* ---- What a dead participant has left ---- */

static shmi_block object_block, record_block;
/* Opens a FairMutex, and finds its block and that of the slot record of this process. */
static void open_fair(shmsync_fairmutex *f)
{
    shmi_record_walk v;
    shmi_off off;
    CHECK(shmsync_fairmutex_open(arena, "x", NULL, f), 0);
    off = shmsync_fairmutex_offset(f);
    CHECK(shmi_locate(arena, off, &object_block), 1);
    shmi_walk_records(arena, &v, off, 0);
    CHECK(shmi_next_record(arena, &v), 1);
    CHECK(v.slot, arena->my_slot);
    record_block = v.b;
}
static void freeing(void) { shmi_st32(object_block.word, shmi_make_block(SHMI_blockFreeing, is_in(third, SHMI_phaseLive, 1))); }
/* A reaper finds a slot record whose maker died before it had published the record, while another participant begins to
 * free the object. The reaper publishes the record: the deleter frees what is on the list of the object, and stops at a
 * block that is not published. */
static void kept(void)
{
    shmsync_fairmutex f;
    uint32_t claimed = shmi_make_block(SHMI_blockClaimed, shmi_make_participant_id(arena->my_slot, shmi_id_gen(arena->self) + 1));
    int is;
    open_fair(&f);
    RUNS(
        object_block.word, freeing, shmi_st32(record_block.word, claimed),
        {
            pthread_mutex_lock(&arena->handles);
            is = shmi_keep_record(arena, &record_block, claimed);
            pthread_mutex_unlock(&arena->handles);
        },
        {
            CHECK(is, 1);
            CHECK(shmi_ld32(record_block.word), shmi_record_word(arena->my_slot));
            shmi_st32(object_block.word, shmi_make_block(SHMI_blockObject, 0));
        });
    is_in(third, SHMI_phaseFree, 0);
}

static void published(void) { shmi_st32(object_block.word, shmi_make_block(SHMI_blockObject, 0)); }
/* A participant has died when it had just opened an object whose maker had not published it. The maker goes on while a
 * reaper clears the open bits of the dead participant. */
static void closed(void)
{
    shmsync_fairmutex f;
    shmi_header h;
    shmi_participant_id dead = shmi_make_participant_id(other, 1);
    uint32_t mask, *bits;
    open_fair(&f);
    CHECK(shmi_read_header(arena, &object_block, &h), 0);
    bits = shmi_open_bit(arena, &h, other, &mask);
    shmi_or64(shmi_touched_word(arena, other, object_block.chunk % SHMI_touchedBits), UINT64_C(1) << object_block.chunk % 64);
    RUNS(
        object_block.word, published,
        {
            shmi_or32(bits, mask);
            shmi_st32(object_block.word, shmi_make_block(SHMI_blockClaimed, arena->self));
        },
        shmi_clear_open_bits(arena, dead), CHECK(shmi_ld32(bits) & mask, 0));
    published();
    shmi_forget_touched(arena, other);
}

/* A dead participant had claimed a block, and had not cleared the bytes, which are those of an earlier object. They name a
 * block that this process has just claimed, and has not cleared either. A reaper frees the first block only. */
static void stale(void)
{
    shmi_off off, named;
    shmi_block b, x;
    uint32_t claimed = shmi_make_block(SHMI_blockClaimed, shmi_make_participant_id(other, 1));
    CHECK(shmi_claim(arena, 256, &off), 0);
    CHECK(shmi_claim(arena, 128, &named), 0);
    CHECK(shmi_locate(arena, off, &b), 1);
    CHECK(shmi_locate(arena, named, &x), 1);
    shmi_st32(shmi_u32(arena, off + SHMI_objRecords), (uint32_t)(named / SHMI_blockMin));
    shmi_st64(shmi_u64(arena, named + SHMI_recordObject), off);
    shmi_st32(shmi_u32(arena, named + SHMI_recordSlot), arena->my_slot);
    shmi_st32(b.word, claimed);
    pthread_mutex_lock(&arena->handles);
    shmi_release_unseen(arena, &b, claimed);
    pthread_mutex_unlock(&arena->handles);
    CHECK(shmi_ld32(b.word), SHMI_blockFree);
    CHECK(shmi_ld32(x.word), shmi_make_block(SHMI_blockClaimed, arena->self));
    shmi_unclaim(arena, named);
}

/* ---- Wait nodes ---- */

static shmi_off node_off;
static shmi_node *node;
static uint32_t *node_block;
static void ended(void) { shmi_st64(&node->next, SHMI_RECORDED(SHMI_RECORDED_GRANTED, 2)); }
/* A record ends the wait of a dead participant, and is yet to resolve it. This process does not know the kind of the object,
 * so it leaves the node to others. */
static void off_queue(void)
{
    shmsync_fairmutex f;
    uint32_t *kind;
    int off;
    open_fair(&f);
    kind = shmi_u32(arena, shmsync_fairmutex_offset(&f) + SHMI_objKind);
    shmi_st32(kind, SHMI_KIND('N', 'O', 'N', 'E'));
    RUNS(
        &node->next, ended,
        {
            shmi_st64(&node->object, object_block.off);
            shmi_st64(&node->stamp, SHMI_RECORDED_STAMP);
            shmi_st64(&node->next, SHMI_RECORDED(SHMI_RECORDED_LAST, 1));
            shmi_st32(&node->word, shmi_node_with(node->word, SHMI_NodeQueued));
        },
        {
            pthread_mutex_lock(&arena->handles);
            off = shmi_off_queue(arena, node);
            shmi_unguard(arena);
            pthread_mutex_unlock(&arena->handles);
        },
        CHECK(off, 0));
    shmi_st32(kind, SHMI_KIND_FAIR_MUTEX);
}

static shmi_participant_id discards, uses;
static const shmi_off gone_object = 1 << 20, used_object = 2 << 20;
static const uint64_t used_stamp = SHMI_RECORDED_STAMP | UINT64_C(7) << 32;
/* The words by which a participant that deletes the object of the node decides what to do with the node. */
enum { node_words = 6 };
static const void *node_word(int i)
{
    const void *words[node_words];
    words[0] = &node->word;
    words[1] = &node->owner;
    words[2] = &node->object;
    words[3] = &node->stamp;
    words[4] = &node->list;
    words[5] = shmi_slot64(arena, third, SHMI_slotOpening);
    return words[i];
}
/* Makes the node a wait for the object that is being deleted. */
static void waits_for_gone(shmi_participant_id owner, uint32_t state)
{
    shmi_st64(shmi_slot64(arena, third, SHMI_slotOpening), 0);
    shmi_st32(node_block, shmi_make_block(SHMI_blockNode, 0));
    shmi_st32(&node->word, shmi_node_with(node->word, state));
    shmi_st32(&node->owner, owner);
    shmi_st64(&node->object, gone_object);
    shmi_st64(&node->list, 0);
    shmi_st64(&node->stamp, SHMI_RECORDED_STAMP | UINT64_C(1) << 32);
}
static int reused;
/* The owner of the node has died, its reaper has freed the node, and another participant waits with it. */
static void reuses(void)
{
    reused = shmi_cas32(&node->owner, discards, uses);
    if (!reused)
        return; /* the deleter has the node already */
    shmi_st32(&node->word, shmi_node_with(node->word + 16, SHMI_NodeQueued));
    shmi_st64(&node->object, used_object);
    shmi_st64(&node->stamp, used_stamp);
}
/* A participant that deletes an object forgets a wait that was discarded. It leaves the node alone if the node is used
 * again meanwhile. */
static void forgotten(uint32_t state)
{
    shmi_off object = gone_object;
    int i;
    discards = is_in(other, SHMI_phaseLive, 1);
    uses = is_in(third, SHMI_phaseLive, 1);
    for (i = 0; i < node_words; i++)
        RUNS(
            node_word(i), reuses,
            {
                reused = 0;
                waits_for_gone(discards, state);
            },
            shmi_free_node_at(arena, node_off, node, &object),
            {
                if (reused) {
                    CHECK(node->owner, uses);
                    CHECK(shmi_node_state(node->word), SHMI_NodeQueued);
                    CHECK(node->stamp, used_stamp);
                    CHECK(*node_block, shmi_make_block(SHMI_blockNode, 0));
                } else {
                    CHECK(node->stamp, 0);
                    CHECK(*node_block == shmi_make_block(SHMI_blockNode, 0), state == SHMI_NodeResolved);
                }
            });
    is_in(other, SHMI_phaseFree, 0);
    is_in(third, SHMI_phaseFree, 0);
}
static int inherited;
/* A reaper of the owner, or the owner that leaves, is about to free the node. */
static void inherits(void)
{
    shmi_st64(shmi_slot64(arena, third, SHMI_slotOpening), gone_object);
    inherited = shmi_cas32(&node->owner, discards, uses);
}
/* The reaper, or the owner that leaves, has begun to free the node. */
static void resets(void) { inherited = shmi_cas32(&node->owner, discards, 0); }
/* A participant that deletes an object does not free a node that another participant frees. phase is that of the owner. */
static void kept_from(void (*f)(void), uint32_t state, uint32_t phase)
{
    shmi_off object = gone_object;
    int i;
    discards = is_in(other, phase, 1);
    uses = is_in(third, SHMI_phaseLive, 1);
    for (i = 0; i < node_words; i++)
        RUNS(
            node_word(i), f,
            {
                inherited = 0;
                waits_for_gone(discards, state);
            },
            shmi_free_node_at(arena, node_off, node, &object),
            {
                if (inherited)
                    CHECK(*node_block, shmi_make_block(SHMI_blockNode, 0));
                else if (node->owner == arena->self) /* it has found the guard; its reaper, or its leave, frees the node */
                    CHECK(node->stamp, 0);
                else
                    CHECK(*node_block, SHMI_blockFree);
            });
    shmi_st64(shmi_slot64(arena, third, SHMI_slotOpening), 0);
    is_in(other, SHMI_phaseFree, 0);
    is_in(third, SHMI_phaseFree, 0);
}
/* A reaper that has made itself the owner of the node frees it, ends its guard, and waits with the node again. */
static void claims_again(void)
{
    reused = 1;
    shmi_st32(&node->owner, 0);
    shmi_st64(&node->object, 0);
    shmi_st32(&node->word, shmi_node_with(node->word + 16, SHMI_NodeQueued));
    shmi_st64(&node->stamp, used_stamp);
    shmi_st32(&node->owner, uses);
    shmi_st64(&node->object, used_object);
    shmi_st64(shmi_slot64(arena, third, SHMI_slotOpening), 0);
}
/* A participant that deletes an object does not take a node from a reaper that may use it again. */
static void left_to_reaper(void)
{
    shmi_off object = gone_object;
    int i;
    uses = is_in(third, SHMI_phaseLive, 1);
    for (i = 0; i < node_words; i++)
        RUNS(
            node_word(i), claims_again,
            {
                reused = 0;
                waits_for_gone(uses, SHMI_NodeLeft);
                shmi_st64(shmi_slot64(arena, third, SHMI_slotOpening), gone_object);
            },
            shmi_free_node_at(arena, node_off, node, &object),
            {
                CHECK(node->owner, uses);
                CHECK(*node_block, shmi_make_block(SHMI_blockNode, 0));
                if (reused)
                    CHECK(node->stamp, used_stamp);
            });
    shmi_st64(shmi_slot64(arena, third, SHMI_slotOpening), 0);
    is_in(third, SHMI_phaseFree, 0);
}
static int polled;
/* The node is freed, and another participant makes it a poller node of another object. */
static void polls(void)
{
    polled = shmi_cas32(&node->owner, discards, 0);
    if (!polled)
        return; /* the deleter has the node already */
    shmi_st64(&node->object, 0);
    shmi_st32(&node->word, shmi_node_with(node->word + 16, SHMI_NodeWaiting));
    shmi_st64(&node->stamp, 0);
    shmi_st32(&node->owner, uses);
    shmi_st64(&node->object, used_object);
    shmi_st64(&node->list, 1);
}
/* A participant that deletes an object does not free a poller node of another object. */
static void left_to_poller(void)
{
    shmi_off object = gone_object;
    int i;
    discards = is_in(other, SHMI_phaseDead, 1);
    uses = is_in(third, SHMI_phaseLive, 1);
    for (i = 0; i < node_words; i++)
        RUNS(
            node_word(i), polls,
            {
                polled = 0;
                waits_for_gone(discards, SHMI_NodeQueued);
            },
            shmi_free_node_at(arena, node_off, node, &object),
            {
                if (polled)
                    CHECK(*node_block, shmi_make_block(SHMI_blockNode, 0));
            });
    shmi_st64(&node->list, 0);
    is_in(other, SHMI_phaseFree, 0);
    is_in(third, SHMI_phaseFree, 0);
}
static void with_node(void (*f)(void))
{
    shmi_block b;
    CHECK(shmi_claim_node(arena, &node_off, &node), 0);
    CHECK(shmi_locate(arena, node_off, &b), 1);
    node_block = b.word;
    f();
    shmi_reset_node(arena, node_off);
    shmi_st32(node_block, SHMI_blockFree);
}
static void forgotten_left(void) { forgotten(SHMI_NodeLeft); }
static void forgotten_resolved(void) { forgotten(SHMI_NodeResolved); }
static void freed_by_others(void)
{
    static const uint32_t phases[] = {SHMI_phaseLive, SHMI_phaseDead};
    int i;
    for (i = 0; i < 2; i++) {
        kept_from(inherits, SHMI_NodeLeft, phases[i]);
        kept_from(resets, SHMI_NodeLeft, phases[i]);
    }
    kept_from(inherits, SHMI_NodeQueued, SHMI_phaseDead);
    left_to_reaper();
    left_to_poller();
}

/* ---- Handles ---- */

static shmi_off opened;
static void *taken;
/* Another thread, whose open of the object failed, ends it. The memory of its reference is used for something else. */
static void ends(void)
{
    shmi_close_object(arena, opened);
    taken = malloc(sizeof(shmi_ref));
    memset(taken, 1, sizeof(shmi_ref));
}
static void opens(void)
{
    shmi_spec spec;
    shmi_object o;
    int created;
    taken = NULL;
    shmi_spec_of_kind(&spec, SHMI_KIND_VALUE, 1, "v", 8);
    CHECK(shmi_open_object(arena, &spec, &o, &created), 0);
    opened = o.off;
}
/* A handle is closed a second time, while the object has a reference without a handle that ends meanwhile. */
static void unshared(void)
{
    int err;
    RUNS(&arena->handles, ends, opens(), err = shmi_unshare(arena, opened, NULL), {
        CHECK(err, EBADF);
        if (!changed)
            shmi_close_object(arena, opened);
        free(taken);
    });
}

/* ---- Recovery ---- */

static shmsync_multilock multi;
static const uint64_t lost = 5, healthy = 6;
static shmi_multilock_entry *entry;
static uint64_t lost_hold;
static void recovers(void)
{
    shmi_st64(&entry->hold, shmi_recorded_with(entry->hold, 0));
    shmi_st64(&entry->keyLow, shmi_recorded_with(entry->keyLow, (uint32_t)healthy));
}
/* The key is made lost again and again. */
static void churns(void)
{
    shmi_st64(&entry->hold, shmi_recorded_with(entry->hold, (uint32_t)(lost_hold >> 32)));
    loads = 1;
    watched = &entry->hold;
}
static void dies_with_key(const char *name)
{
    shmsync_hold h;
    CHECK(shmsync_arena_open(name, NULL, &arena), 0);
    CHECK(shmsync_multilock_open(arena, "m", NULL, &multi), 0);
    CHECK(shmsync_multilock_lock(&multi, lost, &h), 0);
    raise(SIGKILL);
}
/* The keys that are lost are listed while another process recovers one and locks another key, which gets the entry. The list
 * has no key that is not lost. If a peer changes the entry all the time, the call returns nevertheless. */
static void listed(const char *name)
{
    const uint64_t *words[3];
    uint64_t *keys = NULL;
    size_t n = 0;
    int i, err;
    pid_t p = fork();
    if (p == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dies_with_key(name);
    }
    await_kill(p);
    CHECK(shmsync_arena_open(name, NULL, &arena), 0);
    CHECK(shmsync_multilock_open(arena, "m", NULL, &multi), 0);
    CHECK(shmsync_multilock_state(&multi, lost), EOWNERDEAD);
    entry = &shmi_bucket_words(multi.impl, shmi_bucket_of(lost, multi.impl->log))->entry0;
    CHECK(shmi_key_of(entry), lost);
    lost_hold = entry->hold;
    words[0] = &entry->hold;
    words[1] = &entry->keyLow;
    words[2] = &entry->keyHigh;
    for (i = 0; i < 3; i++)
        RUNS(
            words[i], recovers,
            {
                shmi_st64(&entry->keyLow, shmi_recorded_with(entry->keyLow, (uint32_t)lost));
                shmi_st64(&entry->hold, lost_hold);
            },
            err = shmi_list_keys_left(&multi, &keys, &n),
            {
                CHECK(err, 0);
                CHECK(n, !changed);
                CHECK(n == 0 || keys[0] == lost, 1);
                free(keys);
            });
    shmi_st64(&entry->keyLow, shmi_recorded_with(entry->keyLow, (uint32_t)lost));
    shmi_st64(&entry->hold, lost_hold);
    before_load(&entry->hold, 1, churns);
    err = shmi_list_keys_left(&multi, &keys, &n);
    watched = NULL;
    CHECK(err, 0);
    CHECK(n, 1);
    CHECK(keys[0] == lost, 1);
    free(keys);
}

/* ---- Arrivals at a Barrier ---- */

static shmsync_barrier barrier;
static shmi_barrier_state barrier_now(void)
{
    shmi_barrier_state s;
    memset(&s, 0, sizeof s);
    CHECK(shmi_barrier_read(barrier.impl, &s), 0);
    return s;
}
/* Ends the phase, or breaks it by a death, as a process does that is stopped before it wakes the waiters. The record is
 * one of this process. */
static void ends_phase(int broken)
{
    struct shmi_barrier *x = barrier.impl;
    shmi_barrier_state s, to;
    shmi_record_change ch;
    uint64_t c = shmi_ld64(&x->w->commit);
    int ok;
    CHECK(shmi_barrier_at(x, c, &s, &ok), 0);
    to = s;
    if (broken)
        shmi_barrier_break_by(&to, to.phase, shmi_make_participant_id(other, was));
    else
        shmi_barrier_over(&to);
    ch.n = 0;
    shmi_barrier_differ(&ch, &s, &to);
    CHECK(shmi_records_commit(&x->r, arena->my_slot, c, &ch, &ok), 0);
    CHECK(ok, 1);
}
static void phase_over(void) { ends_phase(0); }
static void phase_broken(void) { ends_phase(1); }
/* A process is stopped before it wakes the waiters of a phase that it has ended or broken. A call that arrives after that
 * wakes them. */
static void arrived(void)
{
    shmi_barrier_state s;
    uint64_t *commit;
    CHECK(shmsync_barrier_open(arena, "barrier", 2, NULL, &barrier), 0);
    commit = &barrier.impl->w->commit;
    RUNS(
        commit, phase_over,
        while (barrier_now().pending == 2) { CHECK(shmsync_barrier_arrive(&barrier, 1, NULL), 0); },
        CHECK(shmsync_barrier_arrive(&barrier, 1, NULL), 0),
        {
            s = barrier_now();
            if (changed && s.pending == 1) /* the phase was over before this arrival */
                CHECK((uint32_t)shmi_eventcount_load(&barrier.impl->e), shmi_barrier_sequence(&s));
        });
    RUNS(
        commit, phase_broken,
        {
            CHECK(shmsync_barrier_reset(&barrier, 2, NULL), 0);
            while (barrier_now().pending == 1) {
                CHECK(shmsync_barrier_arrive(&barrier, 1, NULL), 0);
            }
        },
        CHECK(shmsync_barrier_arrive(&barrier, 1, NULL), 0),
        {
            s = barrier_now();
            if (changed && s.pending == 2) /* the phase was broken before this arrival, which counts nothing */
                CHECK((uint32_t)shmi_eventcount_load(&barrier.impl->e), shmi_barrier_sequence(&s));
        });
}

/* ---- A peer that breaks the rules ---- */

static const void *rewritten; /* the word before whose load the peer acts */
static void (*rewrite)(void);
static int rewrites;
enum { rewrites_most = 20000 }; /* the peer stops then, so that a reaper that does not give up ends, too */
static void rewrite_again(void)
{
    rewrite();
    if (++rewrites < rewrites_most)
        before_load(rewritten, 1, rewrite_again);
}
/* Begins a call beside a peer that acts before each load of the word. */
static void beside_rewriter(const void *word, void (*f)(void))
{
    rewritten = word;
    rewrite = f;
    rewrites = 0;
    f();
    before_load(word, 1, rewrite_again);
}
static shmsync_once rewritten_once;
static shmsync_fairmutex rewritten_fair;
static void next_turn(void)
{
    uint64_t *w = &rewritten_once.impl->w->state;
    *w = shmi_once_taken_by(*w, shmi_make_participant_id(other, was));
}
static void next_hold(void)
{
    uint64_t *w = &rewritten_fair.impl->w->owner;
    *w = (uint64_t)shmi_make_owner(SHMI_kindBiased, shmi_make_participant_id(other, was)) << 32 | (uint32_t)(*w + 1);
}
static void count_run(void *arg) { ++*(int *)arg; }
/* A peer says again and again that another change was made. The record of that change is said to be complete. */
static uint64_t *rewritten_commit;
static void next_change(void) { *rewritten_commit = ((*rewritten_commit >> SHMI_RQ_SLOT_BITS) + 1) << SHMI_RQ_SLOT_BITS; }
/* Makes a reap of an object with a recorded queue beside that peer. The reap leaves the rest to the next one. */
static void overtaken(struct shmi_rq *q)
{
    struct shmi_rq_change x;
    struct shmi_wakes b;
    rewritten_commit = q->commit;
    shmi_wakes_init(&b);
    shmi_rq_lock(q);
    beside_rewriter(q->commit, next_change);
    q->kind->reap(q, &x, &b);
    watched = NULL;
    CHECK(rewrites > 1 && rewrites < rewrites_most, 1);
    CHECK(shmi_rq_reap_due(q), 1);
    beside_rewriter(q->commit, next_change);
    CHECK(q->kind->serve(q, &x, &b), 0);
    watched = NULL;
    CHECK(rewrites > 1 && rewrites < rewrites_most, 1);
    CHECK(q->kind->reap(q, &x, &b), 0);
    CHECK(q->kind->serve(q, &x, &b), 0);
    CHECK(shmi_rq_reap_due(q), 0);
    shmi_rq_unlock(q);
    shmi_rq_wake(q, &b);
}
/* Queues a wait of this process, or a wait that a Signal has woken. Returns its node. */
static shmi_node *queues(struct shmi_rq *q, uint32_t owes)
{
    struct shmi_rq_change x;
    struct shmi_wakes b;
    shmi_wait_node *s;
    int ok;
    CHECK(shmi_wait_node_take(arena, &s), 0);
    shmi_wakes_init(&b);
    shmi_rq_prepare(q, s, 1);
    if (owes != 0) {
        shmi_st64(&s->node->stamp, SHMI_RECORDED_STAMP);
        shmi_st64(&s->node->extra, SHMI_RECORDED(owes, s->extra_tag));
        shmi_st64(&s->node->next, SHMI_RECORDED(SHMI_RECORDED_OWES, s->next_tag));
        return s->node;
    }
    shmi_rq_lock(q);
    CHECK(shmi_rq_begin(q, &x, &b), 0);
    shmi_rq_join(q, &x, s);
    CHECK(shmi_rq_end(q, &x, &b, &ok), 0);
    CHECK(ok, 1);
    shmi_rq_unlock(q);
    return s->node;
}
/* The same for the commit word of an object with a recorded queue. */
static void overtaken_always(void)
{
    shmi_participant_id dead = is_in(other, SHMI_phaseFree, was);
    shmsync_semaphore permits;
    shmsync_fairmutex lock;
    shmsync_cond cond;
    shmi_semaphore_record *r;
    shmi_node *n;
    CHECK(shmsync_semaphore_open(arena, "permits", 4, NULL, &permits), 0);
    r = permits.impl->own; /* it is said to be that of the dead participant */
    shmi_st64(&r->share.name, SHMI_RECORDED(dead, 1));
    shmi_st64(&r->share.permits, SHMI_RECORDED(4, 1));
    shmi_st64(&permits.impl->w->free, 0);
    queues(&permits.impl->q, 0);
    overtaken(&permits.impl->q);
    CHECK(shmsync_semaphore_free(&permits), 4);

    CHECK(shmsync_fairmutex_open(arena, "lock", NULL, &lock), 0);
    shmi_st64(&lock.impl->w->owner, SHMI_RECORDED(shmi_make_owner(SHMI_kindHeld, dead), 1));
    queues(&lock.impl->q, 0);
    overtaken(&lock.impl->q);
    CHECK(shmsync_fairmutex_lock(&lock), EOWNERDEAD);

    CHECK(shmsync_cond_open(arena, "cond", NULL, &cond), 0);
    n = queues(&cond.impl->q, SHMI_COND_SIGNAL);
    shmi_st32(&n->owner, dead);
    queues(&cond.impl->q, 0);
    overtaken(&cond.impl->q);
    CHECK(shmi_recorded_value(&n->next), SHMI_RECORDED_REMOVED);
}
/* A peer changes a word whenever a reaper is about to take it from a dead participant. The reaper gives up after some
 * tries. When the peer has stopped, a call takes the word. */
static void given_up(void)
{
    shmsync_fairmutex_options o;
    struct shmi_record_lock l;
    int ran = 0;
    is_in(other, SHMI_phaseFree, was);
    CHECK(shmsync_once_open(arena, "once", NULL, &rewritten_once), 0);
    beside_rewriter(shmi_slot32(arena, other, SHMI_slotState), next_turn);
    shmi_once_reap(rewritten_once.impl, 0);
    watched = NULL;
    CHECK(rewrites > 1 && rewrites < rewrites_most, 1);
    CHECK(shmsync_once_do(&rewritten_once, count_run, &ran), 0);
    CHECK(ran, 1);
    memset(&o, 0, sizeof o);
    o.policy = SHMSYNC_POLICY_RELEASE;
    CHECK(shmsync_fairmutex_open(arena, "fair", &o, &rewritten_fair), 0);
    l = shmi_fair_lock_of(rewritten_fair.impl);
    beside_rewriter(shmi_slot32(arena, other, SHMI_slotState), next_hold);
    CHECK(shmi_lock_take_open(&l), 0);
    watched = NULL;
    CHECK(rewrites > 1 && rewrites < rewrites_most, 1);
    CHECK(shmsync_fairmutex_lock(&rewritten_fair), 0);
    CHECK(shmsync_fairmutex_unlock(&rewritten_fair), 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*f)(void);
        int least; /* of most */
    } verbs[] = {
        {"who", who, 2},
        {"rows", listed_rows, 2},
        {"recorded", recorded, 2},
        {"undated", undated, 0},
        {"nobody began", nobody_began, 1},
        {"heard", heard, 1},
        {"kept", kept, 1},
        {"closed", closed, 2},
        {"stale", stale, 0},
        {"unshared", unshared, 1},
        {"arrived", arrived, 3},
        {"given up", given_up, 0},
        {"overtaken", overtaken_always, 0},
    };
    static const struct {
        const char *name;
        void (*f)(void);
        int least;
    } of_nodes[] = {{"off queue", off_queue, 1}, {"left", forgotten_left, 1}, {"resolved", forgotten_resolved, 1}, {"freed", freed_by_others, 1}};
    size_t i;
    CHECK(argc, 3);
    alarm(60);
    if (strcmp(argv[2], "listed") == 0) {
        listed(argv[1]);
        CHECK(most >= 2, 1);
        return 0;
    }
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    pthread_mutex_lock(&arena->reaping); /* the death watcher reaps no participant that the test makes up */
    for (i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(argv[2], verbs[i].name) == 0) {
            verbs[i].f();
            CHECK(most >= verbs[i].least, 1);
            return 0;
        }
    for (i = 0; i < sizeof of_nodes / sizeof of_nodes[0]; i++)
        if (strcmp(argv[2], of_nodes[i].name) == 0) {
            with_node(of_nodes[i].f);
            CHECK(most >= of_nodes[i].least, 1);
            return 0;
        }
    return 2;
}
