/* Tests what a thread that waits for a token of a Sequencer finds between its steps: tokens NAME. Exit status 0 if
 * all results were right; SIGALRM ends a test that hangs. */
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

static const char *point;
static void (*act)(void);

void at_point(const char *name)
{
    if (point != NULL && strcmp(name, point) == 0) {
        point = NULL;
        act();
    }
}

#define FAR ((uint64_t)SHMI_TOKEN_FAR)

static shmsync_sequencer s;

static uint64_t cell(uint64_t token) { return shmi_ld64(s.impl->cells[token % SHMI_sequencerCells].state); }

/* The advance to the token finds the announcement, and changes the word. */
static void count_to_it(void)
{
    CHECK(shmsync_sequencer_advance(&s, 4 * FAR, NULL), 0);
    CHECK(cell(0) & SHMI_EVENTCOUNT_ANNOUNCED, 0);
}

/* The counter passes the nearer token, which is about to be announced. */
static void pass_the_nearer(void)
{
    CHECK(shmsync_sequencer_advance(&s, 3 * FAR, NULL), 0);
    act = count_to_it;
    point = "sequencer.wait.looked";
}

static void announce_far(void)
{
    shmi_token_wait w = shmi_token_begin(s.impl, FAR << 10);
    uint64_t word;
    CHECK(shmi_token_announce(&w, &word), 1);
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    uint32_t sequence;
    if (argc != 2)
        return 2;
    alarm(60);
    CHECK(shmsync_arena_open(argv[1], NULL, &a), 0);
    CHECK(shmsync_sequencer_open(a, "s", NULL, &s), 0);

    act = pass_the_nearer;
    point = "sequencer.wait.read";
    CHECK(shmsync_sequencer_wait(&s, 4 * FAR), 0);
    CHECK(point == NULL, 1);

    /* An advance changes the word once, although a waiter has announced itself again before it is woken. */
    announce_far();
    sequence = (uint32_t)cell(0);
    act = announce_far;
    point = "sequencer.count.before_wake";
    CHECK(shmsync_sequencer_advance(&s, 6 * FAR, NULL), 0);
    CHECK(point == NULL, 1);
    CHECK((uint32_t)cell(0) - sequence, 1);

    CHECK(shmsync_sequencer_close(&s), 0);
    CHECK(shmsync_arena_close(a), 0);
    return 0;
}
