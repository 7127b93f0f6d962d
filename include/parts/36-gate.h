/* ---- Epochs and the gate: internal/arenakernel/epoch_word.go and gate.go ---- */

#define SHMI_GATE_BYTE (UINT64_C(1) << 62)
#define SHMI_GATE_PAUSE INT64_C(50000)
#define SHMI_GATE_PAUSE_MOST INT64_C(10000000)
#define SHMI_GATE_TIMEOUT INT64_C(1000000000)
/* Results of functions, besides 0 and errno values. They are negative, so that no errno that on_first returns is equal
 * to one of them. */
enum {
    SHMI_MOVED = -1, /* the name of the arena does not lead to its file any more */
    SHMI_TRY_AGAIN = -2
};

SHMI_FN uint32_t shmi_epoch_phase(uint64_t w) { return (uint32_t)(w >> 61); }
SHMI_FN uint32_t shmi_epoch_number(uint64_t w) { return (uint32_t)w; }
SHMI_FN shmi_participant_id shmi_epoch_claimant(uint64_t w) { return (uint32_t)(w >> 32) & SHMI_NAME_MASK; }
SHMI_FN uint64_t shmi_make_epoch(uint32_t phase, uint32_t number, shmi_participant_id claimant)
{
    return (uint64_t)number | (uint64_t)(claimant & SHMI_NAME_MASK) << 32 | (uint64_t)phase << 61;
}
/* The epoch word that claims the next epoch for claimant, which has the gate. The epoch word before is w. */
SHMI_FN uint64_t shmi_epoch_claim(uint64_t w, shmi_participant_id claimant)
{
    uint32_t n = shmi_epoch_number(w);
    if (shmi_epoch_phase(w) == SHMI_epochOpen || n == 0)
        n = n + 1 != 0 ? n + 1 : 2; /* the number after the greatest one is 2, because epoch 1 means that no participant has changed the arena yet */
    return shmi_make_epoch(SHMI_epochClaiming, n, claimant);
}
/* The epoch word after a claim that has failed because a participant is in. It says that the epoch before the claim is
 * open. */
SHMI_FN uint64_t shmi_epoch_end(uint64_t w)
{
    return shmi_epoch_number(w) <= 1 ? 0 : shmi_make_epoch(SHMI_epochOpen, shmi_epoch_number(w) - 1, 0);
}
/* Whether no participant, not even one that ran on_first, can have changed the arena yet. */
SHMI_FN int shmi_epoch_untouched(uint64_t w)
{
    return shmi_epoch_number(w) == 0 || (shmi_epoch_number(w) == 1 && shmi_epoch_phase(w) == SHMI_epochClaiming);
}
/* The word that contains how many death records there were when the epoch with that number began. A process writes it
 * before it opens the epoch: see epochDeaths in internal/arenakernel/epoch_begin.go. */
SHMI_FN uint64_t *shmi_epoch_deaths(shmsync_arena *a, uint32_t number)
{
    return shmi_u64(a, number % 2 != 0 ? SHMI_hdrEpochDeathsOdd : SHMI_hdrEpochDeaths);
}
SHMI_FN uint64_t shmi_epoch(shmsync_arena *a) { return shmi_ld64(shmi_u64(a, SHMI_hdrEpoch)); }
SHMI_FN int shmi_cas_epoch(shmsync_arena *a, uint64_t from, uint64_t to) { return shmi_cas64(shmi_u64(a, SHMI_hdrEpoch), from, to); }

enum {
    SHMI_isOut,
    SHMI_isDying, /* dead, but threads or system calls of its process may still write */
    SHMI_isIn
};

/* Whether the participant in slot i, which is not this one, is in. */
SHMI_FN int shmi_presence_of(shmsync_arena *a, uint32_t i)
{
    int round;
    for (round = 0; round < 8; round++) { /* there is a further round only if the slot has changed */
        uint32_t w = shmi_slot_state(a, i);
        if (a->self == 0 && shmi_slot_phase(w) == SHMI_phaseDead && !shmi_found_gone(a, i, w) && !shmi_ended(a, i))
            /* only a remover, whose a->self is 0, has to check this: a joiner waits until dead processes have ended
             * before it runs on_first */
            return SHMI_isDying;
        if (i == a->my_slot || (shmi_slot_phase(w) != SHMI_phaseLive && shmi_slot_phase(w) != SHMI_phaseLeaving))
            return SHMI_isOut;
        if (shmi_ld32(shmi_slot32(a, i, SHMI_slotAdmission)) != SHMI_admissionIn) {
            if (shmi_slot_state(a, i) == w)
                return SHMI_isOut;
        } else if (!shmi_survey_dead(a, i, w)) {
            if (shmi_slot_state(a, i) == w)
                return SHMI_isIn;
        } else if (a->self == 0) {
            /* the caller is no participant, so it does not mark the slot dead */
            return shmi_found_gone(a, i, w) || shmi_ended(a, i) ? SHMI_isOut : SHMI_isDying;
        } else {
            shmi_mark(a, i, w);
            if (shmi_slot_state(a, i) == w)
                return SHMI_isDying;
        }
    }
    return SHMI_isDying;
}
/* The slot of a participant that is in, or 0. */
SHMI_FN uint32_t shmi_any_in(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++)
        if (shmi_presence_of(a, i) == SHMI_isIn)
            return i;
    return 0;
}
/* Whether a participant is in, or runs on_first and will then be in. */
SHMI_FN int shmi_occupied(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i);
        if (shmi_slot_phase(w) == SHMI_phaseLive && shmi_ld32(shmi_slot32(a, i, SHMI_slotAdmission)) == SHMI_admissionFirst && !shmi_survey_dead(a, i, w))
            return 1;
        if (shmi_presence_of(a, i) == SHMI_isIn)
            return 1;
    }
    return 0;
}
/* Tries to take the gate. Returns the result of shmi_lock_byte. */
SHMI_FN int shmi_lock_gate(shmsync_arena *a) { return shmi_lock_byte(a->lock_fd, SHMI_GATE_BYTE); }
SHMI_FN void shmi_unlock_gate(shmsync_arena *a) { shmi_unlock_byte(a->lock_fd, SHMI_GATE_BYTE); }

/* The state of a preparation. A joiner that finds no participant in makes a preparation before it takes the gate: it
 * reaps dead participants, and repairs what earlier participants left. See preparation in
 * internal/arenakernel/gate_prepare.go. */
typedef struct shmi_full_state {
    uint32_t word;
    uint64_t window;
} shmi_full_state;
typedef struct shmi_preparation {
    int64_t end;                               /* until this time the joiner waits for reapers; 0 before the first pass over the slots */
    shmi_full_state reaped[SHMI_MaxSlots + 1];  /* dead slots in which nothing is left that the joiner has to repair */
    shmi_full_state earlier[SHMI_MaxSlots + 1]; /* slots in which the joiner has repaired what earlier participants left */
    uint32_t waits[SHMI_MaxSlots / 32 + 1];     /* slots with a dead participant whose process has not ended, or whose reap is not finished */
    int waiting;                                /* whether waits contains a slot */
    /* for each slot, the state in which the joiner last found something there to reap or to repair */
    shmi_full_state met[SHMI_MaxSlots + 1];
    int passes;                                 /* number of passes over the slots */
    /* how often met has changed after the first pass, plus the number of claims that failed because of a death */
    int news;
} shmi_preparation;

/* Joiners may die all the time, so that each pass finds a new death. If news exceeds this number, the joiner leaves
 * some dead participants to shmi_repair_late: those that died before they were in. */
#define SHMI_MOST_NEWS 16
SHMI_FN int shmi_is_late(const shmi_preparation *p) { return p->news > SHMI_MOST_NEWS; }
SHMI_FN void shmi_meet(shmi_preparation *p, uint32_t i, uint32_t w, uint64_t window)
{
    shmi_full_state *s = &p->met[i];
    if (s->word == w && s->window == window)
        return;
    s->word = w;
    s->window = window;
    p->news += p->passes > 1;
}
/* Whether the participant in slot i, in state w, never was in and never began an epoch. */
SHMI_FN int shmi_died_pending(shmsync_arena *a, uint32_t i, uint32_t w)
{
    shmsync_participant p;
    uint32_t flags;
    return shmi_describe(a, i, &p, &flags) != shmi_slot_gen(w) || (flags & SHMI_deathRecordPending) != 0;
}

SHMI_FN int shmi_is_state(shmsync_arena *a, uint32_t i, uint32_t w, const shmi_full_state *s)
{
    return s->word == w && s->window == shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
}
/* Whether another process has the gate. */
SHMI_FN int shmi_gate_busy(shmsync_arena *a) { return shmi_byte_locked(a->lock_fd, SHMI_GATE_BYTE) > 0; }

/* Returns the ID of the last earlier participant of slot i, in state w, if the memory of earlier participants is
 * perhaps not reclaimed yet. Otherwise returns 0. */
SHMI_FN shmi_participant_id shmi_left_by_earlier(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint32_t last = shmi_slot_gen(w);
    if (shmi_slot_taken(w) && last > 0)
        last--;
    if (i == a->my_slot || shmi_slot_phase(w) == SHMI_phaseDead || last == 0 || shmi_ld32(shmi_slot32(a, i, SHMI_slotReclaimed)) >= last)
        return 0;
    return shmi_make_participant_id(i, last);
}
/* Reaps the participant in slot i if it is dead. Returns whether nothing is left to do. */
SHMI_FN int shmi_prepare_slot(shmsync_arena *a, shmi_preparation *p, uint32_t i)
{
    uint32_t w = shmi_slot_state(a, i), dead = shmi_slot_with(w, SHMI_phaseDead), now;
    uint64_t window = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
    if ((shmi_slot_phase(w) != SHMI_phaseDead && !shmi_survey_dead(a, i, w)) || shmi_is_state(a, i, dead, &p->reaped[i]))
        return 1;
    shmi_meet(p, i, dead, window);
    shmi_reap(a, i, w);
    now = shmi_slot_state(a, i);
    if (now == w || now == dead) {
        if (shmi_is_late(p) && shmi_died_pending(a, i, w))
            return 1;
        /* The data is repaired. The rest of the reap belongs to the reaper, which may be stopped. So this joiner waits
         * for it only until p->end. */
        if (shmi_now() < p->end || !shmi_gone(a, shmi_id_in(i, w))) /* the call of shmi_gone comes last, because it may need system calls */
            return 0;
        p->reaped[i].word = dead;
        p->reaped[i].window = window;
    }
    return 1;
}
/* Repairs what dead, an earlier participant of the slot in state w, has left. The joiner that took the slot over has to
 * repair the same, but it may be stopped. */
SHMI_FN void shmi_repair_earlier(shmsync_arena *a, uint32_t w, shmi_participant_id dead)
{
    shmi_concern concern;
    shmi_repair_all(a, dead, shmi_slot_phase(w) == SHMI_phaseJoining && shmi_owes_anybody(a, dead), &concern);
}
/* Reaps all dead participants, and repairs what earlier participants left. Returns whether nothing is left to do. While
 * this function waits for dead processes to end, it checks only their slots, because the check of a slot whose
 * participant lives costs a system call. */
SHMI_FN int shmi_prepare(shmsync_arena *a, shmi_preparation *p)
{
    int full = 0;
    uint32_t i;
    SHMSYNC_CRASHPOINT("arena.gate.preparing");
    if (p->end == 0)
        p->end = shmi_now() + SHMI_GATE_TIMEOUT;
    while (!full) {
        uint32_t only[SHMI_MaxSlots / 32 + 1];
        full = !p->waiting;
        p->passes++;
        memcpy(only, p->waits, sizeof only);
        memset(p->waits, 0, sizeof p->waits);
        p->waiting = 0;
        for (i = 1; i <= a->geo.slots; i++)
            if (i != a->my_slot && (full || (only[i / 32] >> (i % 32) & 1) != 0) && !shmi_prepare_slot(a, p, i)) {
                p->waits[i / 32] |= UINT32_C(1) << (i % 32);
                p->waiting = 1;
            }
        if (p->waiting)
            return 0;
    }
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i);
        shmi_participant_id dead = shmi_left_by_earlier(a, i, w);
        shmi_full_state s;
        if (dead == 0 || shmi_is_state(a, i, w, &p->earlier[i]))
            continue;
        s.word = w;
        s.window = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
        shmi_meet(p, i, w, s.window);
        shmi_repair_earlier(a, w, dead);
        p->earlier[i] = s;
    }
    return 1;
}
/* Whether slot i needs nothing from this joiner any more: p says that the dead participant in the slot is reaped, or
 * that what earlier participants left is repaired. */
SHMI_FN int shmi_prepared_slot(shmsync_arena *a, const shmi_preparation *p, uint32_t i)
{
    uint32_t w = shmi_slot_state(a, i);
    if (shmi_slot_phase(w) == SHMI_phaseDead || shmi_survey_dead(a, i, w))
        return shmi_is_state(a, i, shmi_slot_with(w, SHMI_phaseDead), &p->reaped[i]) || (shmi_is_late(p) && shmi_died_pending(a, i, w));
    return shmi_left_by_earlier(a, i, w) == 0 || shmi_is_state(a, i, w, &p->earlier[i]) || shmi_is_late(p);
}
/* Whether shmi_prepared_slot is true of every slot. */
SHMI_FN int shmi_prepared(shmsync_arena *a, shmi_preparation *p)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++)
        if (i != a->my_slot && !shmi_prepared_slot(a, p, i)) {
            p->news++; /* shmi_meet may not count this death, because the reap may be finished before the next pass */
            return 0;
        }
    return 1;
}
/* Does what a late preparation has left out, after this process has claimed the epoch: see repairLate in
 * internal/arenakernel/gate_prepare.go. */
SHMI_FN void shmi_repair_late(shmsync_arena *a, const shmi_preparation *p)
{
    uint32_t i;
    for (i = 1; shmi_is_late(p) && i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i);
        shmi_participant_id dead = shmi_left_by_earlier(a, i, w);
        if (i == a->my_slot)
            continue;
        if (shmi_slot_phase(w) == SHMI_phaseDead || shmi_survey_dead(a, i, w)) {
            if (!shmi_is_state(a, i, shmi_slot_with(w, SHMI_phaseDead), &p->reaped[i]))
                shmi_reap(a, i, w);
        } else if (dead != 0 && !shmi_is_state(a, i, w, &p->earlier[i])) {
            shmi_repair_earlier(a, w, dead);
        }
    }
}

/* Claims the next epoch if no participant is in. Until this process ends the claim, no participant gets in: see
 * claimEpoch. The caller has the gate. p is the preparation of a joiner; for a remover, p is NULL. The claim of a
 * joiner also fails if p says that a slot still needs a repair. Returns the new epoch word, or 0. If a participant is
 * in, *in is its slot. */
SHMI_FN uint64_t shmi_claim_epoch(shmsync_arena *a, shmi_preparation *p, uint32_t *in)
{
    uint64_t old = shmi_epoch(a), w = shmi_epoch_claim(old, a->self), claimed;
    uint32_t i;
    int dying = 0;
    *in = 0;
    if (shmi_epoch_phase(old) == SHMI_epochRemoved || !shmi_cas_epoch(a, old, w))
        return 0;
    SHMSYNC_CRASHPOINT("arena.gate.claiming");
    for (i = 1; i <= a->geo.slots; i++) {
        int is;
        if (i != a->my_slot && shmi_slot_phase(shmi_slot_state(a, i)) == SHMI_phaseLive)
            shmi_cas32(shmi_slot32(a, i, SHMI_slotAdmission), SHMI_admissionPending, SHMI_admissionRefused);
        is = shmi_presence_of(a, i);
        if (is == SHMI_isIn) {
            *in = i;
            shmi_cas_epoch(a, w, shmi_epoch_end(w));
            return 0;
        }
        dying = dying || is == SHMI_isDying;
    }
    if (dying || (p != NULL && !shmi_prepared(a, p))) { /* restores the claim of a dead claimant, which may have changed the arena in on_first */
        shmi_cas_epoch(a, w, shmi_epoch_phase(old) == SHMI_epochClaimed ? old : shmi_epoch_end(w));
        return 0;
    }
    SHMSYNC_CRASHPOINT("arena.gate.visited");
    claimed = shmi_make_epoch(SHMI_epochClaimed, shmi_epoch_number(w), a->self);
    return shmi_cas_epoch(a, w, claimed) ? claimed : 0; /* 0: a joiner without a byte lock has ended the claim */
}

/* Whether path leads to the file of the arena. A symbolic link to the file does not count, because an open of an arena
 * does not follow a link at the end of its path. */
SHMI_FN int shmi_leads_to(const shmsync_arena *a, const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && (uint64_t)st.st_dev == a->dev && (uint64_t)st.st_ino == a->ino;
}
/* Stores in path, which has room for PATH_MAX bytes, the absolute path of an arena that the program opened by a
 * relative path. The working directory at that time may have another name now, so the function asks the kernel for the
 * present path of this directory: see workingDir in internal/arenakernel/path.go. Returns 0 if the relative path no
 * longer leads from that directory to the file. */
SHMI_FN int shmi_leads_home(const shmsync_arena *a, char *path)
{
    char own[32];
    ssize_t n;
    if (a->home < 0)
        return 0;
    snprintf(own, sizeof own, "/proc/self/fd/%d", a->home);
    n = readlink(own, path, PATH_MAX - 1);
    if (n <= 0 || (size_t)n + 1 + strlen(a->below) >= PATH_MAX)
        return 0;
    if (path[n - 1] != '/')
        path[n++] = '/';
    memcpy(path + n, a->below, strlen(a->below) + 1);
    return shmi_leads_to(a, path);
}
/* Stores the current path of the arena in path, even if the working directory from which this process opened it was
 * renamed. */
SHMI_FN void shmi_current_path(const shmsync_arena *a, char *path)
{
    if (shmi_leads_to(a, a->path) || !shmi_leads_home(a, path))
        snprintf(path, PATH_MAX, "%s", a->path);
}
SHMI_FN void shmi_origin_now(shmi_origin *o)
{
    struct stat st;
    memset(o, 0, sizeof *o);
    if (stat("/", &st) == 0) {
        o->root_dev = (uint64_t)st.st_dev;
        o->root_ino = (uint64_t)st.st_ino;
    }
    if (stat("/proc/thread-self/ns/mnt", &st) == 0)
        o->mounts = (uint64_t)st.st_ino;
}
/* Whether this process has another root directory or mount namespace than at the open of the arena. */
SHMI_FN int shmi_other_origin(const shmsync_arena *a)
{
    shmi_origin now;
    shmi_origin_now(&now);
    if (now.root_ino != 0 && a->origin.root_ino != 0 && (now.root_ino != a->origin.root_ino || now.root_dev != a->origin.root_dev))
        return 1;
    return now.mounts != 0 && a->origin.mounts != 0 && now.mounts != a->origin.mounts;
}
/* Whether the file of the arena has no name any more. */
SHMI_FN int shmi_unlinked(const shmsync_arena *a)
{
    struct stat st;
    const int fd = shmi_borrow_file(a), gone = fd >= 0 && fstat(fd, &st) == 0 && st.st_nlink == 0;
    shmi_return_file(a, fd);
    return gone;
}
/* Whether the path of the arena leads to another file, or to none. If this process has changed its root directory or
 * its mount namespace, the path shows nothing. Then only a file without a name counts as moved. */
SHMI_FN int shmi_moved(shmsync_arena *a)
{
    char *path; /* too large for a small stack */
    struct stat st;
    int moved;
    if (strchr(a->path, '/') == NULL)
        return 0;
    if (lstat(a->path, &st) != 0 ? errno != ENOENT : (uint64_t)st.st_dev == a->dev && (uint64_t)st.st_ino == a->ino)
        return 0;
    if (a->home >= 0) {
        path = (char *)malloc(PATH_MAX);
        moved = path != NULL && !shmi_leads_home(a, path); /* if there is no memory for the path, the file counts as not moved */
        free(path);
        if (!moved)
            return 0;
    }
    return !shmi_other_origin(a) || shmi_unlinked(a);
}
/* Whether the file may outlive a reboot, because it may be on a disk. */
SHMI_FN int shmi_outlives_boot(shmsync_arena *a)
{
    struct statfs fs;
    const int fd = shmi_borrow_file(a), known = fd >= 0 && fstatfs(fd, &fs) == 0;
    shmi_return_file(a, fd);
    return known && (uint32_t)fs.f_type != 0x01021994 /* tmpfs */ && (uint32_t)fs.f_type != 0x958458f6 /* hugetlbfs */ &&
           (uint32_t)fs.f_type != 0x858458f6 /* ramfs */;
}
/* The number of the epoch that this participant is about to leave, or 0 if it was never in. *synced is the number of
 * the last epoch after which the file was written back. The slot is not free yet, so the epoch cannot end. */
SHMI_FN uint32_t shmi_epoch_of_write_back(shmsync_arena *a, uint32_t *synced)
{
    uint64_t w = shmi_epoch(a);
    *synced = shmi_ld32(shmi_u32(a, SHMI_hdrSynced));
    if (shmi_ld32(shmi_slot32(a, a->my_slot, SHMI_slotAdmission)) != SHMI_admissionIn)
        return 0;
    return shmi_epoch_number(shmi_epoch_phase(w) == SHMI_epochClaiming ? shmi_epoch_end(w) : w);
}
/* This participant has left the epoch with that number. If it was the last participant in the epoch, and the file is on
 * a disk, writes the file back. To find out whether it was the last, the function reads the state words of the slots
 * before and after the write: if none has changed, no process was in meanwhile. */
SHMI_FN void shmi_write_back(shmsync_arena *a, uint32_t number, uint32_t synced)
{
    uint32_t i, *words;
    int same = 1;
    if (number == 0 || !shmi_outlives_boot(a))
        return;
    words = (uint32_t *)malloc(((size_t)a->geo.slots + 1) * sizeof *words);
    if (words == NULL) /* then the file counts as not written back */
        return;
    for (i = 1; i <= a->geo.slots; i++) {
        words[i] = shmi_slot_state(a, i);
        same = same && !shmi_slot_taken(words[i]);
    }
    same = same && msync(a->base, (size_t)a->size, MS_SYNC) == 0;
    for (i = 1; same && i <= a->geo.slots; i++)
        same = shmi_slot_state(a, i) == words[i];
    free(words);
    if (!same)
        return;
    shmi_cas32(shmi_u32(a, SHMI_hdrSynced), synced, number);
    msync(a->base, SHMI_headerSize, MS_SYNC);
}

/* ---- Removal of a file: internal/arenakernel/remove_file.go ---- */

/* The private name to which a remover renames the file with inode number ino, before it removes the file from path. */
SHMI_FN void shmi_private_name(const char *path, uint64_t ino, char *out, size_t n)
{
    const char *base = strrchr(path, '/') + 1;
    snprintf(out, n, "%.*s.%.200s.%llu.removed~", (int)(base - path), path, base, (unsigned long long)ino);
}
/* Tests define this as a number that no system call has, to test without renameat2. */
#ifndef SHMI_RENAMEAT2
#define SHMI_RENAMEAT2 SYS_renameat2
#endif
/* Renames a file without replacing another file. EEXIST: the new path is taken. ENOTSUP: the kernel, or the file
 * system, cannot do that. */
SHMI_FN int shmi_rename_new(const char *from, const char *to)
{
    int err = syscall(SHMI_RENAMEAT2, AT_FDCWD, from, AT_FDCWD, to, 1u) == 0 ? 0 : errno; /* RENAME_NOREPLACE */
    return err == ENOSYS || err == EINVAL || err == EOPNOTSUPP ? ENOTSUP : err;
}
/* Whether the entry at private_name was left by a process that died while it removed the file that own describes. Such
 * an entry is either a hard link to the file, or the symbolic link that shmi_rename_to_private makes as a placeholder.
 * This process has the gate of the file, so no living process is removing it. */
SHMI_FN int shmi_left_by_remover(const struct stat *own, const char *private_name, const char *placeholder)
{
    char says[64];
    struct stat there;
    ssize_t n;
    if (lstat(private_name, &there) == 0 && there.st_dev == own->st_dev && there.st_ino == own->st_ino)
        return 1;
    n = readlink(private_name, says, sizeof says);
    return n > 0 && (size_t)n == strlen(placeholder) && memcmp(says, placeholder, (size_t)n) == 0;
}
SHMI_FN int shmi_rename_to_private(const char *path, const char *private_name, const char *placeholder)
{
    int err = shmi_rename_new(path, private_name);
    if (err != ENOTSUP)
        return err;
    /* Without renameat2, a rename may replace a file that has the private name. So this remover first makes a symbolic
     * link of that name, which fails if the name is taken. The rename then replaces only the link. */
    if (symlink(placeholder, private_name) != 0)
        return errno;
    SHMSYNC_CRASHPOINT("arena.remove.placed");
    if (rename(path, private_name) == 0)
        return 0;
    err = errno;
    unlink(private_name);
    return err;
}
/* Renames the file at path to its private name. An entry of that name that a dead remover has left is replaced. EEXIST:
 * another file has that name. */
SHMI_FN int shmi_take_private_name(const struct stat *own, const char *path, const char *private_name)
{
    char placeholder[64];
    int err;
    snprintf(placeholder, sizeof placeholder, "removal of inode %llu", (unsigned long long)own->st_ino);
    err = shmi_rename_to_private(path, private_name, placeholder);
    if (err != EEXIST || !shmi_left_by_remover(own, private_name, placeholder))
        return err;
    if (unlink(private_name) != 0 && errno != ENOENT)
        return errno;
    return shmi_rename_to_private(path, private_name, placeholder);
}
/* Whether the entry at path is the file that own describes. */
SHMI_FN int shmi_is_at(const char *path, const struct stat *own)
{
    struct stat there;
    return lstat(path, &there) == 0 && there.st_dev == own->st_dev && there.st_ino == own->st_ino;
}
/* Fails with err because the open file fd could not be removed from path, and says why. */
SHMI_COLD int shmi_fail_removal(int err, int fd, const char *path)
{
    char *dir;
    struct stat own, st;
    const char *slash = strrchr(path, '/');
    int known;
    if (err == EBUSY)
        return shmi_fail(err, "arena.remove", path, "the file is a mount point");
    dir = slash != NULL ? strndup(path, (size_t)(slash - path + 1)) : strdup(".");
    known = dir != NULL && fstat(fd, &own) == 0 && stat(dir, &st) == 0;
    free(dir);
    if ((err != EPERM && err != EACCES) || !known)
        return shmi_fail(err, "arena.remove", path, "%s", "");
    if ((st.st_mode & S_ISVTX) != 0)
        return shmi_fail(err, "arena.remove", path, "the directory has the sticky bit, and the file belongs to uid %u: only that user may remove it", (unsigned)own.st_uid);
    return shmi_fail(err, "arena.remove", path, "the removal needs write permission for the directory");
}
enum { SHMI_privateMost = PATH_MAX + 300 }; /* room for a private name */
/* The part of shmi_remove_file that uses the private name. private_name has room for SHMI_privateMost bytes. */
SHMI_FN int shmi_remove_by(int fd, const char *path, int *moved, char *private_name)
{
    struct stat own, there;
    int err;
    if (fstat(fd, &own) != 0)
        return shmi_fail(errno, "arena.remove", path, "%s", "");
    shmi_private_name(path, (uint64_t)own.st_ino, private_name, SHMI_privateMost);
    SHMSYNC_CRASHPOINT("arena.remove.checked");
    err = shmi_take_private_name(&own, path, private_name);
    if (err == EEXIST)
        return shmi_fail(err, "arena.remove", path, "another program has a file at %s, which the removal needs: move it away", shmi_end_of(private_name, 200));
    if (err == ENOENT)
        return 0;
    if (err != 0 && !shmi_is_at(path, &own)) { /* something else is at path now, such as a directory, which rename cannot put in the place of the symbolic link */
        *moved = 1;
        return 0;
    }
    if (err != 0)
        return shmi_fail_removal(err, fd, path);
    if (lstat(private_name, &there) != 0)
        return errno == ENOENT ? 0 : shmi_fail(errno, "arena.remove", path, "%s", "");
    if (own.st_dev == there.st_dev && own.st_ino == there.st_ino) {
        SHMSYNC_CRASHPOINT("arena.remove.renamed");
        return unlink(private_name) == 0 || errno == ENOENT ? 0 : shmi_fail(errno, "arena.remove", path, "%s", "");
    }
    *moved = 1;
    err = shmi_rename_new(private_name, path);
    if (err == ENOTSUP) {
        err = link(private_name, path) == 0 ? 0 : errno;
        if (err == 0)
            unlink(private_name);
    }
    if (err != 0)
        return shmi_fail(err, "arena.remove", path, "another program has put a file there, which is at %s now", shmi_end_of(private_name, 200));
    return 0;
}
/* Removes the open file fd from path. The caller has the gate of the file. *moved says that path led to another file,
 * which stays at path. The kernel has no call that removes a name only if it leads to a certain file. So this function
 * first renames what is at path, and then checks whether it has renamed the open file. */
SHMI_FN int shmi_remove_file(int fd, const char *path, int *moved)
{
    char *private_name = (char *)malloc(SHMI_privateMost); /* too large for a small stack */
    int err;
    *moved = 0;
    err = private_name != NULL ? shmi_remove_by(fd, path, moved, private_name) : shmi_fail(ENOMEM, "arena.remove", path, "%s", "");
    free(private_name);
    return err;
}
/* Removes files that were at path, and whose removers died after they had renamed them to private names. Without memory,
 * leaves them to the process that creates the next arena. */
SHMI_FN void shmi_sweep_removed(const char *path)
{
    const char *base = strrchr(path, '/') + 1;
    char *private_name = (char *)malloc(SHMI_privateMost), *dir = strndup(path, (size_t)(base - path));
    struct dirent *e;
    DIR *d = private_name != NULL && dir != NULL ? opendir(dir) : NULL;
    while (d != NULL && (e = readdir(d)) != NULL) {
        struct stat own, there;
        int fd;
        shmi_private_name(path, (uint64_t)e->d_ino, private_name, SHMI_privateMost);
        if (strcmp(strrchr(private_name, '/') + 1, e->d_name) != 0)
            continue;
        fd = open(private_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
            continue;
        if (fstat(fd, &own) == 0 && own.st_ino == e->d_ino && shmi_lock_byte(fd, SHMI_GATE_BYTE) == 0 && lstat(private_name, &there) == 0 &&
            own.st_dev == there.st_dev && own.st_ino == there.st_ino)
            unlink(private_name);
        close(fd);
    }
    if (d != NULL)
        closedir(d);
    free(private_name);
    free(dir);
}

/* Removes the file of an arena that this process has claimed. *moved says that the file was not removed, because the
 * path leads to another file by now, or because the claim has ended. */
SHMI_FN int shmi_unlink_claimed(shmsync_arena *a, uint64_t w, int *moved)
{
    char *path;
    int err;
    *moved = 1;
    if (shmi_epoch(a) != w)
        return 0; /* a joiner without byte locks has ended the claim */
    path = (char *)malloc(PATH_MAX);
    if (path == NULL)
        return shmi_fail(ENOMEM, "arena.remove", a->label, "%s", "");
    shmi_current_path(a, path);
    err = shmi_remove_file(a->fd, path, moved);
    free(path);
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("arena.remove.unlinked");
    /* In the phase SHMI_epochRemoved, joiners that have the file open look the name up again. They have to do so even
     * if the file was moved, because no path that they know leads to it. */
    shmi_cas_epoch(a, w, shmi_make_epoch(SHMI_epochRemoved, shmi_epoch_number(w), shmi_epoch_claimant(w)));
    SHMSYNC_CRASHPOINT("arena.remove.marked");
    return 0;
}

/* Fails with err, and names the process for which this joiner waits. */
SHMI_FN int shmi_fail_gate(shmsync_arena *a, int err, const char *op)
{
    uint64_t w = shmi_epoch(a);
    shmi_participant_id n = shmi_epoch_claimant(w);
    shmsync_participant p;
    if (shmi_epoch_phase(w) != SHMI_epochClaiming && shmi_epoch_phase(w) != SHMI_epochClaimed)
        return shmi_fail(err, op, a->label, "another process has the gate of the arena");
    if (shmi_who(a, n, &p) != 0)
        return shmi_fail(err, op, a->label, "a process that is no participant has the gate of the arena, for epoch %u", shmi_epoch_number(w));
    return shmi_fail(err, op, a->label, "%s (pid %u, slot %u.%u) begins epoch %u", p.label[0] != 0 ? p.label : "process", p.pid, p.slot, p.generation, shmi_epoch_number(w));
}
/* Whether this process is beginning the epoch: it runs on_first. */
SHMI_FN int shmi_begins_epoch(shmsync_arena *a)
{
    uint64_t w = shmi_epoch(a);
    return shmi_epoch_phase(w) == SHMI_epochClaimed && shmi_epoch_claimant(w) == a->self;
}
/* Appends a description of the participant in slot i to words. The participant is number n of a list, of which only the
 * first two are described. */
SHMI_FN void shmi_say_participant(shmsync_arena *a, uint32_t i, uint32_t n, shmi_words *words)
{
    shmsync_participant p;
    if (n > 2)
        return;
    shmi_read_slot(a, i, shmi_slot_gen(shmi_slot_state(a, i)), &p);
    shmi_say(words, "%s%.40s (pid %u, slot %u.%u)", n > 1 ? ", " : "", p.label[0] != 0 ? p.label : "process", p.pid, i, p.generation);
}
/* Says in words which other participants are in, two at most, and returns how many there are. */
SHMI_COLD uint32_t shmi_say_insiders(shmsync_arena *a, shmi_words *words)
{
    uint32_t i, n = 0;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i);
        if (i == a->my_slot || (shmi_slot_phase(w) != SHMI_phaseLive && shmi_slot_phase(w) != SHMI_phaseLeaving) ||
            shmi_ld32(shmi_slot32(a, i, SHMI_slotAdmission)) != SHMI_admissionIn || shmi_survey_dead(a, i, w))
            continue;
        shmi_say_participant(a, i, ++n, words);
    }
    if (n > 2)
        shmi_say(words, " and %u more", n - 2);
    if (n > 0)
        shmi_say(words, n == 1 ? " is in" : " are in");
    return n;
}
/* Fails with EBUSY, and names participants that are in. */
SHMI_COLD int shmi_fail_in(shmsync_arena *a, const char *op)
{
    char who[256];
    shmi_words words;
    memset(&words, 0, sizeof words);
    words.text = who;
    words.size = sizeof who;
    if (shmi_say_insiders(a, &words) == 0)
        return shmi_fail_gate(a, EBUSY, op);
    return shmi_fail(EBUSY, op, a->label, "%s", who);
}

/* Writes the missing death records of the dead participants of slot i. If a joiner is taking the slot over, these are
 * the participants before the joiner. See recordMissingOf in internal/arenakernel/gate_prepare.go. Returns 0 if the
 * slot changed. */
SHMI_FN int shmi_record_missing_of(shmsync_arena *a, uint32_t i)
{
    uint32_t w = shmi_slot_state(a, i), last = shmi_slot_gen(w), of;
    if (shmi_slot_phase(w) == SHMI_phaseDead)
        return shmi_record_deaths(a, i, w, last);
    if (shmi_slot_phase(w) != SHMI_phaseJoining)
        return 1;
    /* A joiner that takes a slot over describes itself only after it has recorded the death of its predecessor. */
    of = shmi_ld32(shmi_slot32(a, i, SHMI_slotDescribed));
    return of == 0 || of >= last || shmi_record_deaths(a, i, w, last - 1);
}
SHMI_FN void shmi_record_missing(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++) {
        int tries;
        for (tries = 0; i != a->my_slot && tries < 8 && !shmi_record_missing_of(a, i); tries++) {
        }
    }
}

/* Describes the epoch that this process begins. No participant is in, and the dead are reaped. The caller frees *dead.
 * *torn says that the file may contain pages of different times after a reboot. *deaths is the total number of death
 * records so far. */
SHMI_FN int shmi_begin_epoch(shmsync_arena *a, uint64_t w, shmsync_epoch *e, shmsync_participant **dead, int *torn, uint64_t *deaths)
{
    static const unsigned char none[16] = {0};
    uint64_t total, since, first, n;
    size_t found = 0, before = 0, k;
    unsigned char *boot = (unsigned char *)shmi_bytes(a, SHMI_hdrEpochBoot, 16);
    shmsync_participant *v = (shmsync_participant *)calloc((size_t)SHMI_deathRecordDeaths, sizeof *v);
    memset(e, 0, sizeof *e);
    *torn = 0;
    *dead = v;
    if (v == NULL)
        return shmi_fail(ENOMEM, "arena.open", a->label, "%s", "");
    e->number = shmi_epoch_number(w);
    shmi_record_missing(a);
    since = shmi_ld64(shmi_epoch_deaths(a, shmi_epoch_number(w) - 1));
    total = shmi_ld64(shmi_death_records_total(a, 0));
    *deaths = total;
    e->clean = since <= total;
    if (since > total)
        since = total;
    first = total > SHMI_deathRecordDeaths ? total - SHMI_deathRecordDeaths : 0;
    if (since < first)
        since = first, e->clean = 0;
    for (n = first; n < total; n++) {
        shmi_participant_id name;
        shmsync_participant p;
        shmi_off o = shmi_death_record(a, 0, n);
        if (!shmi_read_death_record(a, 0, n, &p, &name)) {
            /* The record is not whole: its writer was stopped or died while it wrote. The death has another record. But
             * if the ring was full, the writer may have overwritten a whole record of another death. Then the epoch is
             * not clean, unless the overwritten record is of an earlier epoch. */
            e->clean = e->clean && (n < since || n < SHMI_deathRecordDeaths);
            continue;
        }
        for (k = 0; k < found && (v[k].slot != p.slot || v[k].generation != p.generation); k++) {
        }
        if (k < found) /* this is a second record of the same death, because no later participant gets an ID that a record contains */
            continue;
        v[found++] = p;
        if (n < since)
            before = found;
        else
            e->clean = e->clean && (shmi_ld32(shmi_u32(a, o + SHMI_deathRecordFlags)) & SHMI_deathRecordPending) != 0 && shmi_ld64(shmi_u64(a, o + SHMI_deathRecordSeq)) == n + 1;
    }
    memmove(v, v + before, (found - before) * sizeof *v); /* the earlier deaths were reported in earlier epochs */
    found -= before;
    e->dead = v;
    e->n_dead = found;
    /* A process that cannot read the ID of its boot knows nothing about a reboot. */
    if (shmi_outlives_boot(a) && memcmp(a->boot, none, 16) != 0 && memcmp(boot, none, 16) != 0 && memcmp(boot, a->boot, 16) != 0) {
        e->reboot = 1;
        *torn = shmi_ld32(shmi_u32(a, SHMI_hdrSynced)) != shmi_epoch_number(w) - 1;
        e->clean = e->clean && !*torn;
    }
    return 0;
}

/* Whether the records of deaths and leaves show no participant that has begun an epoch. The epoch word is not enough:
 * if two claimants die one after the other, it does not say what the first one did. A record that is not whole proves
 * nothing: see nobodyBegan in internal/arenakernel/epoch_begin.go. */
SHMI_FN int shmi_nobody_began(shmsync_arena *a)
{
    int left;
    for (left = 0; left < 2; left++) {
        uint64_t total = shmi_ld64(shmi_death_records_total(a, left)), n;
        if (total > (left ? SHMI_deathRecordCount - SHMI_deathRecordDeaths : SHMI_deathRecordDeaths))
            return 0;
        for (n = 0; n < total; n++) {
            shmi_off o = shmi_death_record(a, left, n);
            /* The sequence number is read first, because a writer stores it last. */
            if (shmi_ld64(shmi_u64(a, o + SHMI_deathRecordSeq)) == n + 1 && (shmi_ld32(shmi_u32(a, o + SHMI_deathRecordFlags)) & SHMI_deathRecordPending) == 0)
                return 0;
        }
    }
    return 1;
}

/* Notes that the calling thread begins or ends on_first, or the function of shmsync_wait_hook during an open. While it
 * runs such a function, the thread must not open the arena. */
enum { SHMI_inOnFirst = 1, SHMI_inWaitHook };
SHMI_FN void shmi_note_hook(shmsync_arena *a, int runs);

/* Makes this process, which has the gate and has reaped the dead, the first participant of an epoch, if no participant
 * is in. Returns SHMI_TRY_AGAIN if a participant is in or may be, and SHMI_MOVED if the path leads to another file. */
SHMI_FN int shmi_first(shmsync_arena *a, shmi_preparation *p, const shmsync_arena_options *o, int named)
{
    static const unsigned char no_boot[16] = {0};
    uint64_t old = shmi_epoch(a), w, deaths = 0;
    uint32_t in;
    shmsync_epoch e;
    shmsync_participant *dead = NULL;
    int err, torn, moved;
    if (shmi_epoch_phase(old) == SHMI_epochRemoved || (named && shmi_moved(a)))
        return SHMI_MOVED;
    if (shmi_epoch_phase(old) != SHMI_epochClaimed && shmi_any_in(a) != 0)
        return SHMI_TRY_AGAIN;
    w = shmi_claim_epoch(a, p, &in);
    if (w == 0)
        return SHMI_TRY_AGAIN;
    shmi_st32(shmi_slot32(a, a->my_slot, SHMI_slotAdmission), SHMI_admissionFirst);
    SHMSYNC_CRASHPOINT("arena.gate.claimed");
    shmi_repair_late(a, p);
    err = shmi_begin_epoch(a, w, &e, &dead, &torn, &deaths);
    if (err == 0 && o != NULL &&
        ((o->lifetime == SHMSYNC_LIFETIME_EPHEMERAL && !(shmi_epoch_untouched(old) && shmi_nobody_began(a))) || ((o->recreate & SHMSYNC_RECREATE_UNCLEAN) != 0 && !e.clean))) {
        if (!named)
            err = shmi_fail(EINVAL, "arena.open", a->label, "an arena without a name cannot be made anew");
        else if ((err = shmi_unlink_claimed(a, w, &moved)) == 0)
            err = moved ? SHMI_TRY_AGAIN : SHMI_MOVED;
        if (err == SHMI_TRY_AGAIN)
            shmi_st32(shmi_slot32(a, a->my_slot, SHMI_slotAdmission), SHMI_admissionPending);
    } else if (err == 0 && torn) {
        err = shmi_fail(EINVAL, "arena.open", a->label, "the computer was started again while processes were in, so pages of the file may be of different times; SHMSYNC_RECREATE_UNCLEAN replaces it");
    } else if (err == 0 && o != NULL && o->on_first != NULL) {
        shmi_note_hook(a, SHMI_inOnFirst);
        SHMI_OUTSIDE(err = o->on_first(a, &e, o->on_first_arg));
        shmi_note_hook(a, 0);
        if (err != 0)
            shmi_fail(err, "arena.open", a->label, "on_first failed");
        if (err < 0) /* a negative number is no errno */
            err = ECANCELED;
    }
    free(dead);
    if (err != 0)
        return err;
    shmi_st64(shmi_u64(a, SHMI_hdrEpochBegan), (uint64_t)shmi_unix_now());
    if (shmi_outlives_boot(a) && memcmp(a->boot, no_boot, 16) != 0) /* otherwise hdrEpochBoot keeps the last boot that is known */
        memcpy(shmi_bytes(a, SHMI_hdrEpochBoot, 16), a->boot, 16);
    shmi_st64(shmi_epoch_deaths(a, shmi_epoch_number(w)), deaths); /* valid from the CAS below on, which opens the epoch */
    SHMSYNC_CRASHPOINT("arena.gate.begun");
    shmi_st32(shmi_slot32(a, a->my_slot, SHMI_slotAdmission), SHMI_admissionIn);
    if (!shmi_cas_epoch(a, w, shmi_make_epoch(SHMI_epochOpen, shmi_epoch_number(w), 0)))
        return shmi_fail(EPROTO, "arena.open", a->label, "a peer changed the epoch of the arena");
    SHMSYNC_CRASHPOINT("arena.gate.opened");
    return 0;
}

/* Checks the admission word s of a joiner that could not change the word to SHMI_admissionIn. EPROTO: a peer has
 * changed the word. */
SHMI_FN int shmi_check_admission(shmsync_arena *a, uint32_t s)
{
    if (s != SHMI_admissionPending && s != SHMI_admissionRefused)
        return shmi_fail(EPROTO, "arena.open", a->label, "a peer changed the admission of this process to %u", s);
    return 0;
}

/* A joiner that finds the phase SHMI_epochRemoved calls this function. If the path of the arena still leads to the
 * file, the file had several names. Then the function removes this name, too. path has room for PATH_MAX bytes. Returns
 * SHMI_MOVED or an errno. See dropFurtherName in internal/arenakernel/remove.go. */
SHMI_COLD int shmi_drop_name(shmsync_arena *a, char *path)
{
    int err, moved;
    shmi_current_path(a, path);
    if (!shmi_leads_to(a, path))
        return SHMI_MOVED;
    err = shmi_lock_gate(a); /* shmi_leave gives the gate back together with the byte lock */
    if (err == EAGAIN)
        shmi_nap(1000000); /* another process is removing the name, and may be stopped */
    if (err == EAGAIN || (err == 0 && shmi_any_in(a) != 0))
        return SHMI_MOVED;
    if (err != 0)
        return shmi_fail(err, "arena.open", a->label, "could not take the gate, which is a byte lock");
    err = shmi_remove_file(a->lock_fd, path, &moved);
    if (err != 0)
        return shmi_fail(err, "arena.open", a->label, "the arena was removed by another name of its file, and this name could not be removed");
    return SHMI_MOVED;
}
SHMI_COLD int shmi_drop_further_name(shmsync_arena *a, int named)
{
    char *path; /* too large for a small stack */
    int err;
    if (!named || a->lock_fd < 0)
        return SHMI_MOVED;
    path = (char *)malloc(PATH_MAX);
    err = path != NULL ? shmi_drop_name(a, path) : shmi_fail(ENOMEM, "arena.open", a->label, "%s", "");
    free(path);
    return err;
}

/* Runs the function of shmsync_wait_hook if it is due in a wait that began at the time since. Returns whether the wait has
 * to end. This thread holds no lock, so the function may call the library. */
SHMI_FN int shmi_gate_hook(shmsync_arena *a, int64_t since)
{
    int64_t now = shmi_now();
    int ends;
    if (shmi_wait_hook.f == NULL || now - since < SHMI_CHECK_EVERY)
        return 0;
    shmi_note_hook(a, SHMI_inWaitHook);
    ends = shmi_run_wait_hook(&now);
    shmi_note_hook(a, 0);
    return ends;
}

/* As shmi_admit. The caller frees *p afterwards. */
SHMI_FN int shmi_admit_with(shmsync_arena *a, shmi_preparation **p, const shmsync_arena_options *o, int named)
{
    uint32_t *mine = shmi_slot32(a, a->my_slot, SHMI_slotAdmission);
    int64_t pause = SHMI_GATE_PAUSE, now = shmi_now(), removal = now + SHMI_GATE_TIMEOUT, abs = 0;
    int over = 0; /* the function of shmsync_wait_hook ends the wait */
    if (o != NULL && o->gate_timeout_ns > 0)
        abs = o->gate_timeout_ns < INT64_MAX - now ? now + o->gate_timeout_ns : INT64_MAX;
    if (a->lock_fd < 0 && o != NULL && (o->on_first != NULL || o->recreate != 0 || o->lifetime != SHMSYNC_LIFETIME_DURABLE))
        return shmi_fail(ENOTSUP, "arena.open", a->label, "on_first, recreate and lifetime need byte locks (F_OFD_SETLK), which do not work here");
    for (;;) {
        uint64_t w;
        uint32_t phase;
        int err;
        shmi_cas32(mine, SHMI_admissionRefused, SHMI_admissionPending);
        /* The epoch word is read after the store to the admission word. In the other order, this joiner could overlook
         * that a claimant has refused it. */
        w = shmi_epoch(a);
        phase = shmi_epoch_phase(w);
        if (phase == SHMI_epochRemoved)
            return shmi_drop_further_name(a, named);
        if (a->lock_fd < 0) { /* without a byte lock this joiner cannot take the gate, so it begins no epoch */
            shmi_participant_id n = shmi_epoch_claimant(w);
            if (phase == SHMI_epochClaiming) {
                shmi_cas_epoch(a, w, shmi_epoch_end(w));
            } else if (phase == SHMI_epochClaimed && n == 0) { /* a remover has claimed the epoch; nothing shows whether the remover lives */
                if (shmi_now() > removal)
                    shmi_cas_epoch(a, w, shmi_epoch_end(w));
            } else if (!(phase == SHMI_epochClaimed && shmi_current(a, n) && !shmi_dead(a, n))) {
                if (shmi_cas32(mine, SHMI_admissionPending, SHMI_admissionIn))
                    return shmi_epoch_phase(shmi_epoch(a)) == SHMI_epochRemoved || (named && shmi_moved(a)) ? SHMI_MOVED : 0;
                err = shmi_check_admission(a, shmi_ld32(mine));
                if (err != 0)
                    return err;
            }
        } else if (phase != SHMI_epochClaimed && shmi_any_in(a) != 0) {
            if (phase != SHMI_epochClaiming || shmi_cas_epoch(a, w, shmi_epoch_end(w))) {
                if (shmi_cas32(mine, SHMI_admissionPending, SHMI_admissionIn)) {
                    SHMSYNC_CRASHPOINT("arena.gate.admitted");
                    return named && shmi_moved(a) ? SHMI_MOVED : 0;
                }
                err = shmi_check_admission(a, shmi_ld32(mine));
                if (err != 0)
                    return err;
            }
        } else if (shmi_gate_busy(a)) {
            /* Another process runs on_first. Many joiners may wait for it, so they do not examine the slots. */
        } else if (*p == NULL && (*p = (shmi_preparation *)calloc(1, sizeof **p)) == NULL) {
            return shmi_fail(ENOMEM, "arena.open", a->label, "%s", "");
        } else if (shmi_prepare(a, *p)) {
            err = shmi_lock_gate(a);
            if (err == 0) {
                SHMSYNC_CRASHPOINT("arena.gate.taken");
                err = shmi_first(a, *p, o, named);
                /* After a failure this joiner keeps the gate until shmi_leave gives it back together with the byte
                 * lock. So the next process that takes the gate does not count this joiner as in. */
                if (err != 0 && err != SHMI_TRY_AGAIN)
                    return err;
                shmi_unlock_gate(a);
                if (err == 0)
                    return 0;
            } else if (err != EAGAIN) {
                return shmi_fail(err, "arena.open", a->label, "could not take the gate, which is a byte lock");
            }
        }
        if (over || (abs != 0 && shmi_now() >= abs)) {
            if (*p != NULL && (*p)->waiting && !shmi_gate_busy(a))
                return shmi_fail(ETIMEDOUT, "arena.open", a->label, "the process of a participant that died does not end");
            return shmi_fail_gate(a, ETIMEDOUT, "arena.open");
        }
        shmi_nap(pause);
        pause = pause * 2 < SHMI_GATE_PAUSE_MOST ? pause * 2 : SHMI_GATE_PAUSE_MOST;
        over = shmi_gate_hook(a, now);
    }
}
/* Makes this process, whose slot is live, a participant that is in: see admit in internal/arenakernel/gate.go. Returns
 * 0, SHMI_MOVED if the path leads to another file, ETIMEDOUT, or another errno. */
SHMI_FN int shmi_admit(shmsync_arena *a, const shmsync_arena_options *o, int named)
{
    shmi_preparation *p = NULL;
    int err = shmi_admit_with(a, &p, o, named);
    free(p);
    return err;
}
