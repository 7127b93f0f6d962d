/* Moves money: both balances change, or neither, even if the process is killed at any instruction. */
#include <shmsync.h>
#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", shmsync_error());
    return 1;
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_mutex_options opts = {.policy = SHMSYNC_POLICY_ROLLBACK};
    shmsync_mutex m;
    shmsync_tx tx;
    void *p;
    int64_t *balance;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_mutex_open(a, "accounts", &opts, &m) != 0 ||
        shmsync_block_open(a, "balances", 2 * sizeof *balance, &p) != 0 ||
        shmsync_mutex_begin(&m, &tx) != 0)
        return fail();
    balance = (int64_t *)p;
    if (shmsync_tx_save(&tx, balance, 2 * sizeof *balance) == 0) {
        balance[0] -= 10; /* kill -9 here: the next holder finds the old balances */
        balance[1] += 10;
    }
    if (shmsync_tx_commit(&tx) != 0)
        return fail();
    printf("%lld %lld\n", (long long)balance[0], (long long)balance[1]);
    return shmsync_arena_close(a);
}
