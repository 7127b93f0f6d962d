/* Verbs of the agent for the other primitives. */
static int more(const order *o, uint64_t *n)
{
    (void)n;
    (void)o;
    return ENOSYS;
}
