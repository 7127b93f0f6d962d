/* Measures the costs of data that survives, in C: costs NAME. It measures a slice of each row in turn, as
 * BenchmarkDataCosts of package prims does, and prints the nanoseconds of the fastest slice, and the ratio to the
 * first row.
 *
 * costs NAME serve measures what that benchmark asks for: for each line with the name of a row it runs one slice, and
 * answers with the nanoseconds of one operation. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

enum { WORDS = 1024, ROUNDS = 300, TURNS = 1000 };

static shmsync_mutex plain, logged;
static shmsync_rwmutex written;
static shmsync_synchronized value;
static uint64_t *words;
static unsigned char private_[2][65536];
static size_t size;

static void must(int err)
{
    if (err == 0)
        return;
    fprintf(stderr, "%d, %s\n", err, shmsync_error());
    exit(1);
}

static void reference(void)
{
    must(shmsync_mutex_lock(&plain));
    words[0]++;
    words[100]++;
    must(shmsync_mutex_unlock(&plain));
}

static void save(shmsync_tx *tx)
{
    int i;
    switch (size) {
    case 0:
        break;
    case 2:
        must(shmsync_tx_save(tx, &words[0], sizeof words[0]) | shmsync_tx_save(tx, &words[100], sizeof words[0]));
        words[0]++;
        words[100]++;
        break;
    case 10:
        for (i = 0; i < 10; i++) {
            must(shmsync_tx_save(tx, &words[20 * i], sizeof words[0]));
            words[20 * i] = (uint64_t)i;
        }
        break;
    default:
        must(shmsync_tx_save(tx, words, size));
        words[0]++;
    }
}
static void mutex(void)
{
    shmsync_tx tx;
    must(shmsync_mutex_begin(&logged, &tx));
    save(&tx);
    must(shmsync_tx_commit(&tx));
}
static void rwmutex(void)
{
    shmsync_tx tx;
    must(shmsync_rwmutex_begin(&written, &tx));
    save(&tx);
    must(shmsync_tx_commit(&tx));
}
static void copy(void)
{
    memcpy(private_[0], private_[1], size);
    __asm__ volatile("" : : "r"(private_) : "memory"); /* so that the compiler makes each copy */
}
static void update(void)
{
    void *p;
    must(shmsync_synchronized_begin(&value, &p));
    must(shmsync_synchronized_commit(&value));
}
static void load(void) { must(shmsync_synchronized_load(&value, private_[0])); }

static const struct {
    const char *name;
    void (*f)(void);
    size_t size; /* bytes of data, or the number of words that are saved */
} rows[] = {
    {"reference", reference, 0},
    {"mutex, nothing", mutex, 0},
    {"mutex, two words", mutex, 2},
    {"mutex, 256 B", mutex, 256},
    {"mutex, 1024 B", mutex, 1024},
    {"mutex, 4096 B", mutex, 4096},
    {"mutex, ten words", mutex, 10},
    {"rwmutex, nothing", rwmutex, 0},
    {"rwmutex, two words", rwmutex, 2},
    {"rwmutex, 256 B", rwmutex, 256},
    {"memcpy of 16 B", copy, 16},
    {"synchronized update of 16 B", update, 16},
    {"synchronized load of 16 B", load, 16},
    {"memcpy of 4 KiB", copy, 4096},
    {"synchronized update of 4 KiB", update, 4096},
    {"synchronized load of 4 KiB", load, 4096},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static shmsync_synchronized values[2];

/* Does a slice of a row, and returns its nanoseconds. */
static int64_t slice(int row)
{
    int64_t start;
    int n;
    size = rows[row].size;
    value = values[size == 4096];
    start = shmi_now();
    for (n = 0; n < TURNS; n++)
        rows[row].f();
    return shmi_now() - start;
}

static int serve(void)
{
    char name[64];
    int i;
    while (fgets(name, sizeof name, stdin) != NULL) {
        name[strcspn(name, "\n")] = 0;
        for (i = 0; i < ROWS && strcmp(name, rows[i].name) != 0; i++) {
        }
        if (i == ROWS)
            return 1;
        printf("%.2f\n", (double)slice(i) / TURNS);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_mutex_options mo;
    shmsync_rwmutex_options wo;
    int64_t least[ROWS], took;
    int round, i;
    void *p;
    if (argc != 2 && (argc != 3 || strcmp(argv[2], "serve") != 0))
        return 2;
    memset(&mo, 0, sizeof mo);
    memset(&wo, 0, sizeof wo);
    mo.policy = wo.policy = SHMSYNC_POLICY_ROLLBACK;
    must(shmsync_arena_open(argv[1], NULL, &a));
    must(shmsync_mutex_open(a, "plain", NULL, &plain));
    must(shmsync_mutex_open(a, "logged", &mo, &logged));
    must(shmsync_rwmutex_open(a, "written", &wo, &written));
    must(shmsync_synchronized_open(a, "small", 16, NULL, &values[0]));
    must(shmsync_synchronized_open(a, "large", 4096, NULL, &values[1]));
    must(shmsync_block_open(a, "words", WORDS * sizeof *words, &p));
    words = (uint64_t *)p;
    if (argc == 3)
        return serve();
    for (round = 0; round < ROUNDS; round++)
        for (i = 0; i < ROWS; i++) {
            took = slice(i);
            if (round == 0 || took < least[i])
                least[i] = took;
        }
    for (i = 0; i < ROWS; i++)
        printf("%-34s %9.1f ns %9.2f\n", rows[i].name, (double)least[i] / TURNS, (double)least[i] / (double)least[0]);
    return shmsync_arena_close(a);
}
