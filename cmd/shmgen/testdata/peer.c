/* The C side of the tests of shmgen: peer ARENA. It reads commands, one a line, and answers each command with one
 * line. */
#define SHMSYNC_IMPLEMENTATION
#include "every_shm.h"
#include "small_shm.h"

#include <inttypes.h>

static struct every *value;
static every_synchronized sync_;
static every_queue queue;
static shmsync_lease lease;
static shmsync_arena *a;

static void fill(struct every *p, int s)
{
    int i, j;
    p->i8 = (int8_t)-s;
    p->i16 = (int16_t)(-300 * s);
    p->i32 = -70000 * s;
    p->i64 = INT64_C(-5000000000) * s;
    p->int_ = INT64_C(5000000000) * s;
    p->u8 = (uint8_t)(200 + s);
    p->u16 = (uint16_t)(60000 + s);
    p->u32 = UINT32_C(4000000000) + (uint32_t)s;
    p->u64 = UINT64_C(1) << 63 | (uint64_t)s;
    p->uint = UINT64_C(1) << 62 | (uint64_t)s;
    p->f32 = 0.5f * (float)s;
    p->f64 = 0.125 * s;
    p->flag = s % 2 == 1;
    p->c64[0] = (float)s;
    p->c64[1] = -2.5f;
    p->c128[0] = s;
    p->c128[1] = -7.25;
    memset(p->name, 0, sizeof p->name);
    snprintf((char *)p->name, sizeof p->name, "name %d", s);
    for (i = 0; i < 2; i++)
        for (j = 0; j < 3; j++)
            p->grid[i][j] = s * (10 * i + j);
    p->block = (shmsync_offset)(4096 * s);
    p->state = (uint8_t)s;
    p->took = INT64_C(1000000000) * s;
    every_hits_store(p, (uint64_t)s);
    every_hits_add(p, 40);
    every_level_store(p, 100);
    every_level_add(p, -200 * s);
    every_balance_store(p, -s);
    if (!every_balance_compare_and_swap(p, -s, INT64_C(-9000000000) * s) || every_balance_compare_and_swap(p, 1, 2))
        abort();
    every_mask_swap(p, UINT32_C(0x80000000) | (uint32_t)s);
    every_ready_store(p, s % 2 == 0);
    if (every_ready_swap(p, s % 2 == 1) != (s % 2 == 0) || every_ready_load(p) != (s % 2 == 1))
        abort();
    for (i = 0; i < 4; i++)
        every_cells_store(p, (size_t)i, (uint32_t)(s * i));
    p->where.x = (int16_t)s;
    p->where.y = (int16_t)-s;
    for (i = 0; i < 3; i++) {
        p->path[i].x = (int16_t)(i * s);
        p->path[i].y = (int16_t)(i - s);
    }
    p->range.first = 0.25f;
    p->range.second = (float)s;
    p->user_id = (uint32_t)(77 * s);
    p->class_ = (uint16_t)(7 * s);
    p->inner.a = (uint8_t)s;
    p->inner.b = UINT64_C(1000000000000) * (uint64_t)s;
    p->stamp.author = (uint32_t)(s + 1);
    stamp_edits_store(&p->stamp, (uint32_t)(s + 2));
    p->last = (uint8_t)(250 - s);
}

/* Reports whether the field with this Go name has the value that fill gives it. For NULL, it checks all fields. */
static int same(const struct every *p, const char *field, int s)
{
    struct every want;
    int seen = 0, ok = 1;
    memset(&want, 0, sizeof want);
    fill(&want, s);
#define FIELD(name, member)                                                     \
    if (field == NULL || strcmp(field, name) == 0) {                            \
        seen = 1;                                                               \
        ok = ok && memcmp(&p->member, &want.member, sizeof want.member) == 0;   \
    }
    FIELD("I8", i8)
    FIELD("I16", i16)
    FIELD("I32", i32)
    FIELD("I64", i64)
    FIELD("Int", int_)
    FIELD("U8", u8)
    FIELD("U16", u16)
    FIELD("U32", u32)
    FIELD("U64", u64)
    FIELD("Uint", uint)
    FIELD("F32", f32)
    FIELD("F64", f64)
    FIELD("Flag", flag)
    FIELD("C64", c64)
    FIELD("C128", c128)
    FIELD("Name", name)
    FIELD("Grid", grid)
    FIELD("Block", block)
    FIELD("State", state)
    FIELD("Took", took)
    FIELD("Hits", hits)
    FIELD("Level", level)
    FIELD("Balance", balance)
    FIELD("Mask", mask)
    FIELD("Ready", ready)
    FIELD("Cells", cells)
    FIELD("Where", where)
    FIELD("Path", path)
    FIELD("Range", range)
    FIELD("UserID", user_id)
    FIELD("Category", class_)
    FIELD("Inner", inner.a)
    FIELD("Inner", inner.b)
    FIELD("Stamp", stamp)
    FIELD("Last", last)
    return seen && ok;
}

static void say(int err, int good)
{
    if (err != 0)
        printf("%s\n", shmsync_error());
    else
        puts(good ? "ok" : "differs");
    fflush(stdout);
}

/* Compares two descriptions, which are separated by a |. */
static void difference(char *texts)
{
    char *other = strchr(texts, '|'), out[1024];
    if (other == NULL)
        abort();
    *other++ = 0;
    if (shmi_type_difference(texts, other, 3, out, sizeof out) == 0)
        out[0] = 0;
    printf("%016" PRIx64 " %s\n", shmsync_layout(texts), out);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static char line[1 << 16];
    shmsync_arena_options join;
    if (argc != 2)
        return 2;
    memset(&join, 0, sizeof join);
    join.label = "peer";
    if (strcmp(argv[1], "-") != 0 && shmsync_arena_open(argv[1], &join, &a) != 0)
        return fprintf(stderr, "%s\n", shmsync_error()), 1;
    while (fgets(line, sizeof line, stdin) != NULL) {
        char verb[32], arg[64];
        int s = 0, err = 0, good = 1;
        struct every *p = NULL, item;
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "diff ", 5) == 0) {
            difference(line + 5);
            continue;
        }
        if (sscanf(line, "%31s %63s %d", verb, arg, &s) < 2)
            return 3;
        if (strcmp(verb, "value") == 0) {
            err = every_value_open(a, arg, &value);
        } else if (strcmp(verb, "attach") == 0) {
            err = every_value_attach(a, arg, &value);
        } else if (strcmp(verb, "small") == 0) {
            struct small *small;
            err = small_value_open(a, arg, &small);
        } else if (strcmp(verb, "small.sync") == 0) {
            small_synchronized x;
            err = small_synchronized_open(a, arg, NULL, &x);
        } else if (strcmp(verb, "small.queue") == 0) {
            small_queue x;
            err = small_queue_open(a, arg, 4, &x);
        } else if (strcmp(verb, "fill") == 0) {
            fill(value, s);
        } else if (strcmp(verb, "same") == 0) {
            good = same(value, strcmp(arg, "all") == 0 ? NULL : arg, s);
        } else if (strcmp(verb, "block.same") == 0) {
            p = every_at(a, strtoull(arg, NULL, 0), 1);
            good = p != NULL && same(p, NULL, s);
        } else if (strcmp(verb, "block.fill") == 0) {
            p = every_at(a, strtoull(arg, NULL, 0), 1);
            good = p != NULL && every_at(a, strtoull(arg, NULL, 0), 1000) == NULL && every_at(a, strtoull(arg, NULL, 0), SIZE_MAX) == NULL;
            if (good)
                fill(p, s);
        } else if (strcmp(verb, "block.alloc") == 0) {
            shmsync_offset off = 0;
            err = every_alloc(a, (size_t)s, &off);
            if (err == 0) {
                printf("%" PRIu64 "\n", off);
                fflush(stdout);
                continue;
            }
        } else if (strcmp(verb, "sync") == 0) {
            memset(&item, 0, sizeof item);
            fill(&item, s);
            err = every_synchronized_open(a, arg, &item, &sync_);
        } else if (strcmp(verb, "sync.begin") == 0) {
            err = every_synchronized_begin(&sync_, &p);
            if (err == 0)
                fill(p, s);
        } else if (strcmp(verb, "sync.commit") == 0) {
            err = every_synchronized_commit(&sync_);
        } else if (strcmp(verb, "sync.store") == 0) {
            memset(&item, 0, sizeof item);
            fill(&item, s);
            err = every_synchronized_store(&sync_, &item);
        } else if (strcmp(verb, "sync.same") == 0) {
            err = every_synchronized_load(&sync_, &item);
            good = err == 0 && same(&item, NULL, s);
        } else if (strcmp(verb, "queue") == 0) {
            err = every_queue_open(a, arg, 4, &queue);
        } else if (strcmp(verb, "queue.put") == 0) {
            memset(&item, 0, sizeof item);
            fill(&item, s);
            err = every_queue_put(&queue, &item);
        } else if (strcmp(verb, "queue.same") == 0) {
            err = every_queue_get(&queue, &item);
            good = err == 0 && same(&item, NULL, s);
        } else if (strcmp(verb, "queue.lease") == 0) {
            err = every_queue_lease(&queue, &item, &lease);
            good = err == 0 && same(&item, NULL, s);
        } else {
            return 4;
        }
        say(err, good);
    }
    return a != NULL ? shmsync_arena_close(a) : 0;
}
