/* Tests what the first participant of an epoch finds after deaths, and for which processes it waits: firstreap VERB
 * NAME. Exit status 0 if all results were right; SIGALRM ends a test that hangs. */
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/prctl.h>

#define CHECK(got, want)                                                                                     \
    do {                                                                                                     \
        long long got_ = (long long)(got), want_ = (long long)(want);                                       \
        if (got_ != want_) {                                                                                 \
            fprintf(stderr, "line %d, %s: %s is %lld, not %lld: %s\n", __LINE__, scene, #got, got_, want_, shmsync_error()); \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
static const char *scene = "", *stop_at, *stop_each, *die_at;

#include "processes.h"

void at_point(const char *name)
{
    if (stop_at != NULL && strcmp(name, stop_at) == 0) {
        stop_at = NULL;
        raise(SIGSTOP); /* this stops the thread at once, even the death watcher; kill could stop it some steps later */
    }
    if (stop_each != NULL && strcmp(name, stop_each) == 0)
        raise(SIGSTOP);
    if (die_at != NULL && strcmp(name, die_at) == 0)
        kill(getpid(), SIGKILL);
}

static void path_of(const char *name, char path[300]) { snprintf(path, 300, "/dev/shm/%s", name); }

/* Makes a child. It ends with this process, and keeps no pipe of this process open. */
static pid_t child(void)
{
    pid_t p = fork();
    if (p == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return p;
}

/* Makes the arena anew, with that many slots. */
static void make(const char *name, uint32_t slots)
{
    char path[300];
    shmsync_arena_options o;
    shmsync_arena *a;
    path_of(name, path);
    CHECK(unlink(path), 0);
    memset(&o, 0, sizeof o);
    o.size = 2 << 20;
    o.max_participants = slots;
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* Starts a process that joins, takes the permit if holds is set, and stops. If close_dies is set, it then dies in
 * its close. */
static pid_t member(const char *name, const char *label, int holds, int close_dies)
{
    pid_t p = child();
    if (p == 0) {
        shmsync_arena_options o;
        shmsync_arena *a;
        shmsync_semaphore s;
        memset(&o, 0, sizeof o);
        o.label = label;
        CHECK(shmsync_arena_open(name, &o, &a), 0);
        CHECK(shmsync_semaphore_open(a, "permit", 1, NULL, &s), 0);
        if (holds)
            CHECK(shmsync_semaphore_acquire(&s, 1), 0);
        raise(SIGSTOP);
        if (close_dies) {
            die_at = "arena.close.unregistered";
            shmsync_arena_close(a);
        }
        _exit(3);
    }
    return p;
}
static void end(pid_t p)
{
    int status;
    kill(p, SIGKILL);
    CHECK(waitpid(p, &status, 0), p);
    CHECK(WIFSIGNALED(status), 1);
}

/* What on_first has to find, and how often it ran. */
static struct {
    int clean, n_dead, firsts;
    const char *label;
} told;

static int on_first(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    shmsync_semaphore s;
    size_t k, found = 0;
    (void)arg;
    told.firsts++;
    if (shmsync_semaphore_attach(a, "permit", NULL, &s) == 0) {
        CHECK(shmsync_semaphore_tryacquire(&s, 1), 0);
        CHECK(shmsync_semaphore_release(&s, 1), 0);
        CHECK(shmsync_semaphore_close(&s), 0);
    }
    CHECK(e->n_dead, told.n_dead);
    CHECK(e->clean, told.clean);
    for (k = 0; k < e->n_dead; k++)
        found += told.label != NULL && strcmp(e->dead[k].label, told.label) == 0;
    CHECK(found, told.label != NULL);
    return 0;
}
/* Opens the arena as the first participant of an epoch, with these results in on_first. */
static shmsync_arena *begin(const char *name, int clean, int n_dead, const char *label)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    memset(&o, 0, sizeof o);
    memset(&told, 0, sizeof told);
    told.clean = clean;
    told.n_dead = n_dead;
    told.label = label;
    o.on_first = on_first;
    o.gate_timeout_ns = INT64_C(60000000000);
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(told.firsts, 1);
    return a;
}
static void begin_and_close(const char *name, int clean, int n_dead, const char *label)
{
    CHECK(shmsync_arena_close(begin(name, clean, n_dead, label)), 0);
}

/* Starts a process that stops at that point of its open. After it goes on, it must be the first participant of a
 * clean epoch, or not the first, as is_first says. */
static pid_t stopped(const char *name, const char *point, int is_first)
{
    pid_t p = child();
    if (p == 0) {
        shmsync_arena_options o;
        shmsync_arena *a;
        memset(&o, 0, sizeof o);
        memset(&told, 0, sizeof told);
        told.clean = 1;
        o.on_first = on_first;
        stop_at = point;
        CHECK(shmsync_arena_open(name, &o, &a), 0);
        CHECK(told.firsts, is_first);
        CHECK(shmsync_arena_close(a), 0);
        _exit(0);
    }
    await_stop(p);
    return p;
}

static const char *const points[] = {"arena.gate.preparing", "arena.reap.repaired",   "arena.reap.woken",      "arena.finish.taken",
                                     "arena.record.numbered", "arena.finish.recorded", "arena.finish.reclaimed"};

/* If a joiner is stopped while it reaps the dead, before it begins an epoch, it does not have the gate: others begin
 * the epoch. */
static void reap(const char *name)
{
    size_t k;
    for (k = 0; k < 2 * sizeof points / sizeof *points; k++) {
        int later = k % 2 == 1; /* the joiner goes on after the epoch has ended, and begins the next one */
        pid_t p;
        shmsync_arena *a;
        scene = points[k / 2];
        make(name, 4);
        p = member(name, "victim", 1, 0);
        await_stop(p);
        end(p);
        p = stopped(name, points[k / 2], later);
        a = begin(name, 0, 1, "victim");
        if (later)
            CHECK(shmsync_arena_close(a), 0);
        goes_on(p);
        if (!later)
            CHECK(shmsync_arena_close(a), 0);
        begin_and_close(name, 1, 0, NULL);
    }
}

/* The death of a joiner that was never in leaves the arena clean, even if the process that reaps it is stopped. */
static void pending(const char *name)
{
    static const char *const at[] = {"arena.reap.repaired", "arena.finish.taken", "arena.record.numbered", "arena.finish.recorded"};
    size_t k;
    for (k = 0; k < sizeof at / sizeof *at; k++) {
        int status;
        pid_t p;
        shmsync_arena *a;
        scene = at[k];
        make(name, 4);
        p = child();
        if (p == 0) {
            shmsync_arena_options o;
            memset(&o, 0, sizeof o);
            o.label = "pending";
            die_at = "arena.enter.live";
            shmsync_arena_open(name, &o, &a);
            _exit(3);
        }
        CHECK(waitpid(p, &status, 0), p);
        CHECK(WIFSIGNALED(status), 1);
        p = stopped(name, at[k], 0);
        a = begin(name, 1, 1, "pending");
        goes_on(p);
        CHECK(shmsync_arena_close(a), 0);
    }
}

/* A participant died in its close, and the joiner that takes over its slot is stopped before it has recorded that
 * death. */
static void closing(const char *name)
{
    pid_t victim, other, heir;
    shmsync_arena *a;
    int status;
    make(name, 2);
    victim = member(name, "victim", 0, 1);
    await_stop(victim);
    other = member(name, "other", 0, 0);
    await_stop(other);
    kill(victim, SIGCONT);
    CHECK(waitpid(victim, &status, 0), victim);
    CHECK(WIFSIGNALED(status), 1);
    end(other);
    heir = stopped(name, "arena.inherit.taken", 0);
    a = begin(name, 0, 2, "victim");
    goes_on(heir);
    CHECK(shmsync_arena_close(a), 0);
    begin_and_close(name, 1, 0, NULL);
}

static void record(shmsync_arena *a, uint32_t generation, uint32_t flags)
{
    shmsync_participant p;
    memset(&p, 0, sizeof p);
    p.slot = 3;
    p.generation = generation;
    p.pid = 1;
    p.died_ns = 2;
    memcpy(p.label, "victim", 7);
    shmi_put_death_record(a, 0, &p, flags);
}
/* Two processes may record one death. */
static void twice(const char *name)
{
    shmsync_arena *a;
    make(name, 4);
    a = begin(name, 1, 0, NULL);
    record(a, 7, 0);
    CHECK(shmsync_arena_close(a), 0);
    a = begin(name, 0, 1, "victim");
    record(a, 7, 0);
    CHECK(shmsync_arena_close(a), 0);
    begin_and_close(name, 1, 0, NULL);
}
/* A first participant that dies where it opens its epoch has already reported the earlier deaths: the next epoch
 * reports only its death. */
static void opened(const char *name)
{
    static const char *const at[] = {"arena.gate.begun", "arena.gate.opened"};
    size_t k;
    for (k = 0; k < 4; k++) { /* epochs with odd and even numbers */
        int status;
        pid_t p;
        scene = at[k / 2];
        if (k % 2 == 0)
            make(name, 4);
        p = member(name, "victim", 1, 0);
        await_stop(p);
        end(p);
        p = child();
        if (p == 0) {
            shmsync_arena_options o;
            shmsync_arena *a;
            memset(&o, 0, sizeof o);
            o.label = "first";
            die_at = at[k / 2];
            shmsync_arena_open(name, &o, &a);
            _exit(3);
        }
        CHECK(waitpid(p, &status, 0), p);
        CHECK(WIFSIGNALED(status), 1);
        begin_and_close(name, 0, k / 2 == 0 ? 2 : 1, "first");
        begin_and_close(name, 1, 0, NULL);
        if (k == 2)
            begin_and_close(name, 1, 0, NULL);
    }
    CHECK(shmi_epoch_number(shmi_epoch_claim(shmi_make_epoch(SHMI_epochOpen, UINT32_MAX, 0), 1)), 2);
}
/* If a joiner dies while it cleans up after a dead participant, it is not reported as that participant. */
static void heirs(const char *name)
{
    static const char *const at[] = {"arena.inherit.taken", "arena.inherit.recorded", "arena.inherit.repaired", "arena.inherit.woken", "arena.inherit.reclaimed"};
    size_t k;
    for (k = 0; k < sizeof at / sizeof *at; k++) {
        pid_t victim, other, heir;
        int status;
        scene = at[k];
        make(name, 2);
        victim = member(name, "victim", 1, 0);
        await_stop(victim);
        other = member(name, "other", 0, 0);
        await_stop(other);
        end(other);
        end(victim);
        heir = child();
        if (heir == 0) {
            shmsync_arena_options o;
            shmsync_arena *a;
            memset(&o, 0, sizeof o);
            o.label = "heir";
            die_at = at[k];
            shmsync_arena_open(name, &o, &a);
            _exit(3);
        }
        CHECK(waitpid(heir, &status, 0), heir);
        CHECK(WIFSIGNALED(status), 1);
        begin_and_close(name, 0, 3, "victim"); /* the label is that of one of the three */
        begin_and_close(name, 1, 0, NULL);
    }
}
/* A joiner gives up the slot of a dead participant, because a stopped process reaps it. That death has only one
 * record. */
static void given_up(const char *name)
{
    static const char *const at[] = {"arena.finish.taken", "arena.record.numbered", "arena.finish.recorded"};
    size_t k;
    for (k = 0; k < sizeof at / sizeof *at; k++) {
        pid_t victim, reaper, joiner;
        int status;
        shmsync_arena *a;
        uint64_t n, total, victims = 0;
        scene = at[k];
        make(name, 2);
        victim = member(name, "victim", 0, 0);
        await_stop(victim);
        reaper = child();
        if (reaper == 0) {
            CHECK(shmsync_arena_open(name, NULL, &a), 0);
            stop_at = at[k];
            raise(SIGSTOP);
            for (;;)
                pause();
        }
        await_stop(reaper);
        end(victim);
        joiner = child();
        if (joiner == 0) {
            stop_at = "arena.inherit.reaper";
            CHECK(shmsync_arena_open(name, NULL, &a), ENOSPC);
            _exit(0);
        }
        await_stop(joiner);
        kill(reaper, SIGCONT); /* the ID that the joiner has stored as the reaper is not current yet */
        await_stop(reaper);
        goes_on(joiner);
        kill(reaper, SIGCONT);
        while ((status = shmsync_arena_open(name, NULL, &a)) == ENOSPC) { /* until the reaper has freed the slot */
        }
        CHECK(status, 0);
        total = shmi_ld64(shmi_death_records_total(a, 0));
        for (n = 0; n < total; n++) {
            shmsync_participant p;
            shmi_participant_id id;
            CHECK(shmi_read_death_record(a, 0, n, &p, &id), 1);
            victims += strcmp(p.label, "victim") == 0;
        }
        CHECK(victims, 1);
        CHECK(shmsync_arena_close(a), 0);
        end(reaper);
    }
}
static int on_first_after_deaths(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    shmsync_semaphore s;
    (void)arg;
    told.firsts++;
    CHECK(e->clean, 0);
    CHECK(shmsync_semaphore_attach(a, "permit", NULL, &s), 0);
    CHECK(shmsync_semaphore_tryacquire(&s, 1), 0);
    CHECK(shmsync_semaphore_release(&s, 1), 0);
    return shmsync_semaphore_close(&s);
}
/* A joiner dies each time that another joiner reaps, or has the gate. The other joiner becomes the first participant
 * all the same. */
static void dying(const char *name)
{
    static const char *const at[] = {"arena.gate.preparing", "arena.gate.taken"}, *const dies[] = {"arena.enter.joining", "arena.enter.live", "arena.inherit.repaired"};
    size_t k;
    for (k = 0; k < 2 * 3 * 2; k++) {
        pid_t victim, first;
        int rounds, status, deaths = 0;
        scene = at[k % 2];
        make(name, k >= 6 ? 4 : 2);
        victim = member(name, "victim", 1, 0);
        await_stop(victim);
        end(victim);
        first = child();
        if (first == 0) {
            shmsync_arena_options o;
            shmsync_arena *a;
            memset(&o, 0, sizeof o);
            memset(&told, 0, sizeof told);
            o.on_first = on_first_after_deaths;
            stop_each = at[k % 2];
            CHECK(shmsync_arena_open(name, &o, &a), 0);
            CHECK(told.firsts, 1);
            stop_each = NULL;
            CHECK(shmsync_arena_close(a), 0);
            _exit(0);
        }
        for (rounds = 0;; rounds++) {
            pid_t joiner;
            CHECK(waitpid(first, &status, WUNTRACED), first);
            if (!WIFSTOPPED(status))
                break;
            CHECK(rounds < 5 * SHMI_MOST_NEWS, 1);
            joiner = child();
            if (joiner == 0) {
                shmsync_arena *a;
                die_at = dies[k / 2 % 3];
                if (k / 2 % 3 == 2)
                    stop_at = "arena.enter.live"; /* if the joiner got a free slot */
                CHECK(shmsync_arena_open(name, NULL, &a), ENOSPC); /* the reaping watcher was stopped */
                _exit(0);
            }
            CHECK(waitpid(joiner, &status, WUNTRACED), joiner);
            if (WIFSTOPPED(status))
                end(joiner);
            else if (!WIFSIGNALED(status))
                CHECK(status, 0);
            deaths += !WIFEXITED(status);
            kill(first, SIGCONT);
        }
        CHECK(status, 0);
        if (k >= 6)
            CHECK(deaths != 0, 1); /* a slot was free */
    }
}
/* A writer that is stopped while the ring goes round overwrites the record of another death. */
static void overwritten(const char *name)
{
    shmsync_arena *a;
    shmsync_arena_options o;
    shmi_off r;
    uint64_t hole;
    uint32_t k;
    make(name, 4);
    CHECK(shmsync_arena_open(name, NULL, &a), 0);
    hole = shmi_add64(shmi_death_records_total(a, 0), 1);
    for (k = 0; k < SHMI_deathRecordDeaths - 1; k++)
        record(a, 7 + k, SHMI_deathRecordPending);
    CHECK(shmsync_arena_close(a), 0);
    memset(&o, 0, sizeof o);
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    record(a, 999, 0);
    r = shmi_death_record(a, 0, hole);
    shmi_st64(shmi_u64(a, r + SHMI_deathRecordSeq), 0);
    shmi_st32(shmi_u32(a, r + SHMI_deathRecordID), shmi_make_participant_id(3, 6));
    shmi_st32(shmi_u32(a, r + SHMI_deathRecordFlags), SHMI_deathRecordPending);
    shmi_st64(shmi_u64(a, r + SHMI_deathRecordSeq), hole + 1);
    CHECK(shmsync_arena_close(a), 0);
    begin_and_close(name, 0, 0, NULL);
    begin_and_close(name, 1, 0, NULL);
}

/* A joiner that waits while another process has the gate does not examine the slots. */
static void waiting(const char *name)
{
    char path[300];
    pid_t p;
    int fd, status;
    make(name, 4);
    p = member(name, "victim", 0, 0);
    await_stop(p);
    end(p);
    path_of(name, path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(shmi_lock_byte(fd, SHMI_GATE_BYTE), 0);
    p = child();
    if (p == 0) {
        shmsync_arena_options o;
        shmsync_arena *a;
        close(fd);
        memset(&o, 0, sizeof o);
        o.gate_timeout_ns = 50000000;
        die_at = "arena.gate.preparing";
        CHECK(shmsync_arena_open(name, &o, &a), ETIMEDOUT);
        _exit(0);
    }
    CHECK(waitpid(p, &status, 0), p);
    CHECK(status, 0);
    close(fd);
    begin_and_close(name, 0, 1, "victim");
}

/* An object of another version of a kind has bytes that this program does not know, so the program repairs nothing
 * in it. */
static void version(const char *name)
{
    shmi_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_MUTEX_KIND;
    spec.name = "m";
    spec.size = sizeof(shmi_mutex_words);
    for (spec.version = SHMI_VERSION_MUTEX; spec.version <= SHMI_VERSION_MUTEX + 1; spec.version++) {
        int status, created;
        pid_t p;
        shmsync_arena *a;
        shmi_object o;
        uint32_t dead = 0;
        make(name, 4);
        p = child();
        if (p == 0) {
            CHECK(shmsync_arena_open(name, NULL, &a), 0);
            CHECK(shmi_open_object(a, &spec, &o, &created), 0);
            shmi_st32(shmi_u32(a, o.body), a->self);
            kill(getpid(), SIGKILL);
        }
        CHECK(waitpid(p, &status, 0), p);
        CHECK(WIFSIGNALED(status), 1);
        a = begin(name, 0, 1, NULL);
        CHECK(shmi_open_object(a, &spec, &o, &created), 0);
        CHECK(created, 0);
        dead = shmi_ld32(shmi_u32(a, o.body));
        CHECK(dead != 0 && dead >> 29 == 0, spec.version != SHMI_VERSION_MUTEX);
        shmi_close_object(a, o.off);
        CHECK(shmsync_arena_close(a), 0);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *verb;
        void (*f)(const char *name);
    } verbs[] = {{"reap", reap}, {"pending", pending}, {"closing", closing}, {"twice", twice}, {"opened", opened}, {"heirs", heirs}, {"given up", given_up}, {"dying", dying}, {"overwritten", overwritten}, {"waiting", waiting}, {"version", version}};
    size_t k;
    alarm(300);
    for (k = 0; argc == 3 && k < sizeof verbs / sizeof *verbs; k++)
        if (strcmp(argv[1], verbs[k].verb) == 0) {
            verbs[k].f(argv[2]);
            return 0;
        }
    return 2;
}
